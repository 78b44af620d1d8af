"""One turn from BeginRun to FinishRun, told as it happens.

A turn runs in a task that the runner owns, never in its caller's: whatever the socket does, what was said is
stored, and nobody is told `finished` before that.
"""

import asyncio
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from services.agent.conversation import Conversation
from services.agent.errors import LeaseLost, SessionDeleted, StorageUnavailable
from services.agent.knowledge.naming import DEFAULT_COLLECTION
from services.agent.rag.wording import Line, tell
from services.agent.request_context import AskBack, ChatRequestContext
from services.agent.runtime import Said
from services.agent.texts import clean
from services.agent.turn import (
    AskedBack,
    ContentDelta,
    Heartbeat,
    RunStatus,
    SessionTitled,
    TraceTold,
    Turn,
    TurnEvent,
    TurnFailure,
    TurnFinished,
    TurnRequest,
    TurnResult,
    TurnStarted,
)
from services.agent.usage import Usage
from services.runtime import telemetry
from services.runtime.errors import Internal, ServiceError, ShuttingDown, TimeLimit, TooLarge

log = structlog.get_logger()

HEARTBEAT_S = 15.0
MAX_REPLY_BYTES = 1024 * 1024
# A caller that reads slowly holds its own turn up, and no one's memory.
_QUEUE_EVENTS = 1_000


class Answerer(Protocol):
    """Whoever speaks in a turn; AnsweringAgent does."""

    def answer(self, turn: Turn, *, message: str, context: ChatRequestContext) -> AsyncGenerator[Said]: ...


@dataclass(frozen=True, slots=True)
class _Over:
    """Behind the last event: the turn is over, with an error that the caller is told, or without."""

    error: ServiceError | None


class TurnRunner:
    """Runs turns, and owns their tasks; `aclose` ends them all, with what they had said stored."""

    def __init__(
        self,
        *,
        conversation: Conversation,
        agent: Answerer,
        title: Callable[[str], str],
        turn_limit_s: float,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._conversation = conversation
        self._agent = agent
        self._title = title
        self._turn_limit_s = turn_limit_s
        self._heartbeat_s = heartbeat_s
        self._tasks: dict[asyncio.Task[None], _RunningTurn] = {}

    @asynccontextmanager
    async def turn(self, request: TurnRequest, *, streamed: bool = True) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """The turn's events; leaving before the last one stops it, and what it has said so far is kept.

        The iterator raises the ServiceError that the turn ended with, after `finished` where the turn could
        be stored. `streamed=False` leaves the RAG steps out.
        """
        running = _RunningTurn(
            request,
            conversation=self._conversation,
            agent=self._agent,
            title=self._title,
            limit_s=self._turn_limit_s,
            heartbeat_s=self._heartbeat_s,
            streamed=streamed,
        )
        task = asyncio.create_task(running.run())
        self._tasks[task] = running
        task.add_done_callback(self._tasks.pop)
        try:
            async with aclosing(running.events()) as events:
                yield events
        finally:
            running.leave()

    def stop_all(self, error: ServiceError) -> None:
        """Cuts the turns under way short; their callers are told of the error once it is stored."""
        for running in list(self._tasks.values()):
            running.stop(error)

    async def aclose(self) -> None:
        """Ends the turns that are still under way, and returns once all are stored."""
        self.stop_all(ShuttingDown())
        while self._tasks:
            await asyncio.wait(list(self._tasks))


class _RunningTurn:
    def __init__(
        self,
        request: TurnRequest,
        *,
        conversation: Conversation,
        agent: Answerer,
        title: Callable[[str], str],
        limit_s: float,
        heartbeat_s: float,
        streamed: bool,
    ) -> None:
        self._request = request
        self._conversation = conversation
        self._agent = agent
        self._title = title
        self._limit_s = limit_s
        self._heartbeat_s = heartbeat_s
        self._streamed = streamed
        self._queue: asyncio.Queue[TurnEvent | _Over] = asyncio.Queue(_QUEUE_EVENTS)
        self._production: asyncio.Task[AskBack | None] | None = None
        self._listening = True
        self._stopped = False
        self._stopped_by: ServiceError | None = None
        # Steps and pieces of text go out in the order in which they came about.
        self._order = asyncio.Lock()
        self._said: list[str] = []
        self._said_bytes = 0
        self._usage = Usage()

    def stop(self, error: ServiceError) -> None:
        """Cuts the turn short by an error, which the caller is told."""
        self._cut_short(error)

    def leave(self) -> None:
        """Nobody listens any more: what is still being said is stopped, and what was said is kept."""
        self._listening = False
        while not self._queue.empty():
            self._queue.get_nowait()
        self._cut_short(None)

    def _cut_short(self, error: ServiceError | None) -> None:
        if self._stopped:
            return
        self._stopped, self._stopped_by = True, error
        if self._production is not None:
            self._production.cancel()

    async def events(self) -> AsyncGenerator[TurnEvent]:
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    event = await self._queue.get()
            except TimeoutError:
                yield Heartbeat()
                continue
            if not isinstance(event, _Over):
                yield event
                continue
            if event.error is not None:
                raise event.error
            return

    async def run(self) -> None:
        error: ServiceError | None
        try:
            error = await self._run()
        except ServiceError as failure:
            error = failure
        except Exception as failure:
            error = _unforeseen(failure)
        await self._tell(_Over(error))

    async def _tell(self, event: TurnEvent | _Over) -> None:
        """Puts an event before the caller, who may be slow; dropped once there is no caller."""
        if self._listening:
            await self._queue.put(event)

    async def _run(self) -> ServiceError | None:
        turn = await self._conversation.begin(self._request, title=self._title(self._request.message))
        structlog.contextvars.bind_contextvars(run_id=turn.run_id)
        result, error = await self._live(turn)
        finished, error = await self._store(turn, result, error)
        if result.trace is not None:
            await self._tell(TraceTold(result.trace))
        if finished.task is not None:
            await self._tell(AskedBack(finished.task))
        await self._tell(finished)
        return _about(error, turn) if error else None

    async def _live(self, turn: Turn) -> tuple[TurnResult, ServiceError | None]:
        """What there is to store, and the error that it ended with; whatever breaks, the turn is not lost.

        Raises LeaseLost and SessionDeleted: then there is nothing left to store it in.
        """
        context = self._context(turn)
        try:
            await self._tell(TurnStarted(turn))
            if turn.human_position == 1:
                await self._tell(SessionTitled(turn.title))
            result, error = await self._produce(turn, context)
        except (LeaseLost, SessionDeleted) as lost:
            raise _about(lost, turn) from None
        except Exception as unforeseen:
            result, error = self._ended_by(_unforeseen(unforeseen))
        finally:
            context.close()
        self._usage += context.usage
        return replace(result, trace=context.take_rag_trace(), usage=self._usage), error

    def _context(self, turn: Turn) -> ChatRequestContext:
        make_context = ChatRequestContext.for_stream if self._streamed else ChatRequestContext.for_sync
        resumed = turn.claimed.resume_state if turn.claimed else None
        return make_context(
            user_id=turn.user_id,
            session_id=turn.session_id,
            question=turn.claimed.original_question if turn.claimed else self._request.message,
            collection=self._request.collection or (resumed and resumed.collection) or DEFAULT_COLLECTION,
        )

    async def _store(
        self, turn: Turn, result: TurnResult, error: ServiceError | None
    ) -> tuple[TurnFinished, ServiceError | None]:
        """Where storage refuses what there is, the turn is stored as FAILED, with what was said alone."""
        try:
            try:
                return await self._conversation.finish(turn, result), error
            except (LeaseLost, SessionDeleted, StorageUnavailable):
                raise
            except ServiceError as refused:
                log.error("turn_refused", run_id=turn.run_id, reason=refused.reason, status=result.status)
                bare, _ = self._ended_by(refused)
                return await self._conversation.finish(turn, replace(bare, usage=self._usage)), refused
        except ServiceError as failure:
            raise _about(failure, turn) from None

    async def _produce(self, turn: Turn, context: ChatRequestContext) -> tuple[TurnResult, ServiceError | None]:
        """Lets the agent speak until it is done, stopped, out of time, or its lease is lost."""
        if self._stopped:
            return self._ended_by(self._stopped_by)
        production = self._production = asyncio.create_task(self._speak(turn, context))
        renewal = asyncio.create_task(self._keep_lease(turn))
        try:
            await asyncio.wait({production, renewal}, timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED)
            production.cancel()
            # The lease is kept while what was cancelled tidies up.
            await asyncio.wait({production})
            asked_to_stop = renewal.done()
        finally:
            for task in (production, renewal):
                task.cancel()
            await asyncio.wait({production, renewal})
        if asked_to_stop and (lost := renewal.exception()) is not None:
            raise lost
        if not production.cancelled():
            return self._outcome(production)
        if self._stopped:
            return self._ended_by(self._stopped_by)
        if asked_to_stop:
            return self._ended_by(None)
        return self._ended_by(TimeLimit("the turn", limit_s=self._limit_s))

    def _outcome(self, production: asyncio.Task[AskBack | None]) -> tuple[TurnResult, ServiceError | None]:
        if (failure := production.exception()) is not None:
            return self._ended_by(failure if isinstance(failure, ServiceError) else _unforeseen(failure))
        if (ask_back := production.result()) is not None:
            return TurnResult(status=RunStatus.AWAITING_INPUT, reply=ask_back.prompt, ask_back=ask_back), None
        return TurnResult(status=RunStatus.COMPLETED, reply="".join(self._said)), None

    def _ended_by(self, error: ServiceError | None) -> tuple[TurnResult, ServiceError | None]:
        """What there is to store of a turn that was cut short: by an error, or by its caller."""
        reply = "".join(self._said) or None
        if error is None:
            return TurnResult(status=RunStatus.CANCELLED, reply=reply), None
        failure = TurnFailure(code=error.kind.value, reason=error.reason, message=str(error))
        return TurnResult(status=RunStatus.FAILED, reply=reply, failure=failure), error

    async def _speak(self, turn: Turn, context: ChatRequestContext) -> AskBack | None:
        """Forwards what the agent says; the question where it asks back instead of answering."""
        forwarding = asyncio.create_task(self._forward_steps(context))
        tell(context, Line.RECEIVED)
        try:
            async with aclosing(self._agent.answer(turn, message=self._request.message, context=context)) as said:
                async for piece in said:
                    if isinstance(piece, AskBack):
                        return piece
                    if isinstance(piece, Usage):
                        self._usage += piece
                    else:
                        await self._say(piece, context)
            return None
        finally:
            # What was told before the end still goes out, in its place before what follows.
            context.close()
            await forwarding

    async def _forward_steps(self, context: ChatRequestContext) -> None:
        while steps := await context.next_steps():
            async with self._order:
                for step in steps:
                    await self._tell(step)

    async def _say(self, text: str, context: ChatRequestContext) -> None:
        if not (text := clean(text)):
            return
        self._said_bytes += len(text.encode())
        if self._said_bytes > MAX_REPLY_BYTES:
            raise TooLarge("the reply", limit=MAX_REPLY_BYTES, actual=self._said_bytes)
        async with self._order:
            for step in context.drain_steps():
                await self._tell(step)
            # Kept before it is told, and taken back where it could not be: what is stored is what was told.
            self._said.append(text)
            try:
                await self._tell(ContentDelta(text))
            except asyncio.CancelledError:
                self._said.pop()
                raise

    async def _keep_lease(self, turn: Turn) -> None:
        """Renews the lease until someone asks for the turn to stop; raises LeaseLost, SessionDeleted."""
        while True:
            await asyncio.sleep(turn.lease_s / 3)
            try:
                if await self._conversation.renew(turn):
                    return
            except (LeaseLost, SessionDeleted):
                raise
            except ServiceError as error:
                log.warning("lease_not_renewed", run_id=turn.run_id, reason=error.reason)


def _about(error: ServiceError, turn: Turn) -> ServiceError:
    """The error, telling which run and session it is about."""
    error.metadata = {**error.metadata, "run_id": turn.run_id, "session_id": turn.session_id}
    return error


def _unforeseen(error: BaseException) -> ServiceError:
    """Logs where it happened and of what type it is; its text may hold a user's words."""
    frames = traceback.extract_tb(error.__traceback__)
    log.error(
        "turn_failed_unforeseen",
        error=type(error).__name__,
        frames=[f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-12:]],
    )
    return Internal(telemetry.request_id())
