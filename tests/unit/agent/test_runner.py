"""A turn between a storage and an agent that do what a test tells them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

import pytest

from services.agent.errors import LeaseLost, ModelMalformed, StorageRefused, StorageUnavailable
from services.agent.request_context import ChatRequestContext
from services.agent.runner import TurnRunner
from services.agent.runtime import Said
from services.agent.turn import (
    ContentDelta,
    Heartbeat,
    RunStatus,
    Turn,
    TurnEvent,
    TurnFinished,
    TurnRequest,
    TurnResult,
    TurnStarted,
)
from services.runtime.errors import Kind, ServiceError


def refusal(reason: str = "INVALID_FIELD") -> StorageRefused:
    return StorageRefused("no", kind=Kind.INVALID_ARGUMENT, reason=reason, metadata={}, retry_after_s=None)


@dataclass
class Storage:
    """Keeps what it is given; `refusals` are what `finish` raises first, `renewals` what `renew` does."""

    lease_s: float = 30
    refusals: list[ServiceError] = field(default_factory=list)
    renewals: list[bool | ServiceError] = field(default_factory=list)
    renewed: int = 0
    renewed_thrice: asyncio.Event = field(default_factory=asyncio.Event)
    results: list[TurnResult] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    finishing: asyncio.Event = field(default_factory=asyncio.Event)
    may_finish: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_begin.set()
        self.may_finish.set()

    async def begin(self, request: TurnRequest, *, title: str) -> Turn:
        self.begun.set()
        await self.may_begin.wait()
        return Turn(
            user_id=request.user_id,
            session_id="s",
            run_id="r",
            request_id="",
            fencing_token=1,
            lease_s=self.lease_s,
            human_position=3,
            human_message_id="m",
            title=title,
        )

    async def renew(self, turn: Turn) -> bool:
        self.renewed += 1
        if self.renewed == 3:
            self.renewed_thrice.set()
        answer = self.renewals.pop(0) if self.renewals else False
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    async def finish(self, turn: Turn, result: TurnResult) -> TurnFinished:
        self.finishing.set()
        await self.may_finish.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        self.results.append(result)
        return TurnFinished(
            status=result.status,
            failure=result.failure,
            ai_position=4 if result.reply else 0,
            ai_message_id="a",
            session_revision=2,
            usage=result.usage,
            reply=result.reply or "",
        )


class Speaker:
    """Says its pieces; waits where a piece is an event, raises where it is an exception."""

    def __init__(self, *pieces: str | asyncio.Event | Exception) -> None:
        self._pieces = pieces
        self.stopped = asyncio.Event()

    async def answer(self, turn: Turn, *, message: str, context: ChatRequestContext) -> AsyncGenerator[Said]:
        try:
            for piece in self._pieces:
                if isinstance(piece, asyncio.Event):
                    await piece.wait()
                elif isinstance(piece, Exception):
                    raise piece
                else:
                    yield piece
        finally:
            self.stopped.set()


def runner(storage: Storage, speaker: Speaker, *, limit_s: float = 30, heartbeat_s: float = 15) -> TurnRunner:
    return TurnRunner(conversation=storage, agent=speaker, title=str, turn_limit_s=limit_s, heartbeat_s=heartbeat_s)


REQUEST = TurnRequest(user_id="u", message="hello")


async def told(turns: TurnRunner, *, until: Callable[[TurnEvent], bool] | None = None) -> list[TurnEvent]:
    """All events of a turn, or those to the first that `until` holds of; then the caller leaves."""
    events = []
    async with turns.turn(REQUEST) as stream:
        async for event in stream:
            events.append(event)
            if until and until(event):
                break
    return events


async def told_to_its_error(turns: TurnRunner) -> tuple[list[TurnEvent], ServiceError]:
    events = []
    with pytest.raises(ServiceError) as ended:
        async with turns.turn(REQUEST) as stream:
            async for event in stream:
                events.append(event)
    return events, ended.value


def is_delta(event: TurnEvent) -> bool:
    return isinstance(event, ContentDelta)


async def test_finished_is_told_after_the_turn_is_stored_alone() -> None:
    storage = Storage()
    storage.may_finish.clear()
    turns = runner(storage, Speaker("all of it"))
    events: list[TurnEvent] = []

    async def listen() -> None:
        async with turns.turn(REQUEST) as stream:
            async for event in stream:
                events.append(event)

    listening = asyncio.create_task(listen())
    await storage.finishing.wait()
    assert not any(isinstance(event, TurnFinished) for event in events)
    storage.may_finish.set()
    await listening
    assert isinstance(events[-1], TurnFinished)


async def test_a_caller_who_leaves_while_the_turn_is_stored_loses_nothing() -> None:
    storage = Storage()
    storage.may_finish.clear()
    turns = runner(storage, Speaker("all of it"))
    async with turns.turn(REQUEST) as stream:
        async for _ in stream:
            if storage.finishing.is_set():
                break
            await asyncio.wait([asyncio.create_task(storage.finishing.wait())], timeout=0.01)
    storage.may_finish.set()
    await turns.aclose()
    assert [(result.status, result.reply) for result in storage.results] == [(RunStatus.COMPLETED, "all of it")]


async def test_a_caller_who_leaves_before_the_turn_has_begun_leaves_no_run_behind() -> None:
    storage = Storage()
    storage.may_begin.clear()
    speaker = Speaker("never said")
    turns = runner(storage, speaker)

    async def listen() -> None:
        async with turns.turn(REQUEST) as stream:
            async for _ in stream:
                pass

    listening = asyncio.create_task(listen())
    await storage.begun.wait()
    listening.cancel()
    await asyncio.wait({listening})
    storage.may_begin.set()
    await turns.aclose()
    assert [(result.status, result.reply) for result in storage.results] == [(RunStatus.CANCELLED, None)]
    assert not speaker.stopped.is_set()


async def test_a_refused_end_is_stored_as_a_failure_with_what_was_said() -> None:
    storage = Storage(refusals=[refusal()])
    events, error = await told_to_its_error(runner(storage, Speaker("as far as this")))
    assert error.reason == "INVALID_FIELD"
    assert isinstance(events[-1], TurnFinished)
    [result] = storage.results
    assert (result.status, result.reply) == (RunStatus.FAILED, "as far as this")
    assert result.failure and result.failure.reason == "INVALID_FIELD"
    assert error.metadata["run_id"] == "r"


async def test_a_lost_lease_ends_the_turn_without_finished() -> None:
    storage = Storage(lease_s=0.03, renewals=[LeaseLost("r")])
    speaker = Speaker("so far", asyncio.Event())
    events, error = await told_to_its_error(runner(storage, speaker))
    assert error.reason == "LEASE_LOST"
    assert not any(isinstance(event, TurnFinished) for event in events)
    assert speaker.stopped.is_set()
    assert storage.results == []


async def test_a_lease_lost_at_the_end_ends_the_turn_without_finished() -> None:
    events, error = await told_to_its_error(runner(Storage(refusals=[LeaseLost("r")]), Speaker("all of it")))
    assert error.reason == "LEASE_LOST"
    assert not any(isinstance(event, TurnFinished) for event in events)


async def test_a_renewal_that_fails_for_now_does_not_end_the_turn() -> None:
    done = asyncio.Event()
    storage = Storage(lease_s=0.03, renewals=[StorageUnavailable(), refusal("CONTENTION")])
    turns = runner(storage, Speaker("all ", done, "of it"))
    events: list[TurnEvent] = []
    async with turns.turn(REQUEST) as stream:
        async for event in stream:
            events.append(event)
            if is_delta(event) and not done.is_set():
                await asyncio.wait_for(storage.renewed_thrice.wait(), 10)
                done.set()
    assert isinstance(events[-1], TurnFinished)
    assert [result.reply for result in storage.results] == ["all of it"]


async def test_a_turn_that_was_asked_to_stop_keeps_what_was_said() -> None:
    storage = Storage(lease_s=0.03, renewals=[True])
    speaker = Speaker("so far", asyncio.Event())
    events = await told(runner(storage, speaker))
    assert isinstance(events[-1], TurnFinished)
    assert [(result.status, result.reply) for result in storage.results] == [(RunStatus.CANCELLED, "so far")]


async def test_a_slow_caller_is_told_what_is_stored_and_no_less() -> None:
    storage = Storage()
    pieces = [f"{number} " for number in range(5_000)]
    turns = runner(storage, Speaker(*pieces), limit_s=0.2)
    events: list[TurnEvent] = []
    with pytest.raises(ServiceError) as ended:
        async with turns.turn(REQUEST) as stream:
            async for event in stream:
                if is_delta(event) and len(events) < 10:
                    await asyncio.sleep(0.05)
                events.append(event)
    assert ended.value.reason == "TIME_LIMIT"
    [result] = storage.results
    assert result.reply == "".join(event.text for event in events if isinstance(event, ContentDelta))


async def test_a_caller_who_does_not_read_holds_up_its_own_turn_alone() -> None:
    storage = Storage()
    speaker = Speaker(*["x"] * 5_000)
    turns = runner(storage, speaker)
    async with turns.turn(REQUEST) as unread:
        assert isinstance(await anext(unread), TurnStarted)
        events = await told(runner(storage, Speaker("another")))
        assert isinstance(events[-1], TurnFinished)
        assert not speaker.stopped.is_set()
    await turns.aclose()
    assert speaker.stopped.is_set()


async def test_a_quiet_turn_shows_that_it_is_alive() -> None:
    done = asyncio.Event()
    turns = runner(Storage(), Speaker(done, "at last"), heartbeat_s=0.01)
    beats = 0
    async with turns.turn(REQUEST) as stream:
        async for event in stream:
            beats += isinstance(event, Heartbeat)
            if beats == 3:
                done.set()
    assert beats >= 3


async def test_stopping_all_turns_tells_each_why_and_stores_it() -> None:
    storage = Storage()
    turns = runner(storage, Speaker("so far", asyncio.Event()))
    events = []
    with pytest.raises(ModelMalformed):
        async with turns.turn(REQUEST) as stream:
            async for event in stream:
                events.append(event)
                if is_delta(event):
                    turns.stop_all(ModelMalformed())
    assert isinstance(events[-1], TurnFinished)
    assert [(result.status, result.reply) for result in storage.results] == [(RunStatus.FAILED, "so far")]


async def test_two_turns_at_once_do_not_mix() -> None:
    storage = Storage()
    turns = [runner(storage, Speaker(*[name] * 200)) for name in ("a", "b")]
    for name, events in zip(("a", "b"), await asyncio.gather(*map(told, turns)), strict=True):
        assert {event.text for event in events if isinstance(event, ContentDelta)} == {name}
