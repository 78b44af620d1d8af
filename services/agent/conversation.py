"""The conversation that a turn belongs to: the port to storage, and its adapter on the client library."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import structlog
from google.protobuf.duration_pb2 import Duration
from pydantic import ValidationError

from askback.client import AskbackError, StorageClient
from askback.client import LeaseLost as ClientLeaseLost
from askback.client import RunNotFound as ClientRunNotFound
from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2, run_service_pb2, session_pb2
from services.agent.errors import LeaseLost, SessionDeleted, StorageRefused, StorageUnavailable
from services.agent.request_context import AskBack
from services.agent.schemas import HitlTask, PendingHitlState, RagTrace
from services.agent.turn import (
    HistoryMessage,
    MessageType,
    Turn,
    TurnFailure,
    TurnFinished,
    TurnRequest,
    TurnResult,
)
from services.agent.wire import enum_name, enum_number, from_wire, to_wire
from services.runtime.errors import FieldViolation, InvalidField, Kind, NotImplementedYet, ServiceError

log = structlog.get_logger()

_Reply = TypeVar("_Reply")


class Conversation(Protocol):
    """Where turns are begun and stored. A call that was cut may have taken effect; each may be made again."""

    async def begin(self, request: TurnRequest, *, title: str) -> Turn:
        """Takes the session's lease and stores the user's message.

        Raises StorageRefused with storage's own reason (RUN_IN_PROGRESS, HITL_TASK_NOT_PENDING, …),
        StorageUnavailable, or NotImplementedYet for a request_id whose run another call holds.
        """
        ...

    async def renew(self, turn: Turn) -> bool:
        """Extends the lease; True where someone asked for the turn to stop.

        Raises LeaseLost, SessionDeleted, or StorageUnavailable.
        """
        ...

    async def finish(self, turn: Turn, result: TurnResult) -> TurnFinished:
        """Stores how the turn ended and frees the lease, all or nothing.

        Tries again within the lease while storage cannot be reached or is too busy. Raises LeaseLost,
        SessionDeleted, StorageUnavailable, or what storage refuses it with.
        """
        ...


class StoredConversation:
    """The port on the storage service's client."""

    def __init__(self, storage: StorageClient, *, lease_s: float, context_messages: int, hitl_expire_s: float) -> None:
        self._storage = storage
        self._lease_s = lease_s
        self._context_messages = context_messages
        self._hitl_expire_s = hitl_expire_s

    async def begin(self, request: TurnRequest, *, title: str) -> Turn:
        holder_id = uuid.uuid4().hex
        # Without a request_id of the caller's, one is made, so that a lost reply can be asked for again.
        request_id = request.request_id or uuid.uuid4().hex
        policy = run_service_pb2.PendingHitlPolicy.DESCRIPTOR
        begun = await _told(
            self._storage.begin_run(
                user_id=request.user_id,
                session_id=request.session_id,
                message=request.message,
                request_id=request_id,
                holder_id=holder_id,
                answers_task_id=request.answers_task_id,
                pending_hitl_policy=enum_number(request.pending_hitl_policy, policy),
                lease=self._lease_s,
                max_context_messages=self._context_messages,
                title_if_new=title,
            )
        )
        if not begun.is_holder:
            raise NotImplementedYet("joining a run by its request_id")
        run = begun.run
        return Turn(
            user_id=request.user_id,
            session_id=run.session_id,
            run_id=run.run_id,
            request_id=request.request_id,
            fencing_token=begun.fencing_token,
            lease_s=self._lease_s,
            human_position=run.human_position,
            human_message_id=run.human_message_id,
            title=begun.session.title,
            note=begun.session.note,
            history=_window(begun.context),
            claimed=_claimed(begun.claimed_task) if begun.HasField("claimed_task") else None,
            answered_task_id=run.answered_task_id,
        )

    async def renew(self, turn: Turn) -> bool:
        renewed = await _told(
            self._storage.renew_run(user_id=turn.user_id, run_id=turn.run_id, fencing_token=turn.fencing_token),
            turn=turn,
        )
        return bool(renewed.cancel_requested)

    async def finish(self, turn: Turn, result: TurnResult) -> TurnFinished:
        reply, opened_task, error = _reply(result), self._draft(result.ask_back), _error(result.failure)
        usage = run_pb2.Usage(
            input_tokens=result.usage.input_tokens,
            output_tokens=result.usage.output_tokens,
            model_calls=result.usage.model_calls,
        )

        async def attempt() -> run_service_pb2.FinishRunResponse:
            return await _told(
                self._storage.finish_run(
                    user_id=turn.user_id,
                    run_id=turn.run_id,
                    fencing_token=turn.fencing_token,
                    status=enum_number(result.status, run_pb2.RunStatus.DESCRIPTOR),
                    reply=reply,
                    opened_task=opened_task,
                    error=error,
                    usage=usage,
                ),
                turn=turn,
            )

        finished = await _within_lease(attempt, lease_s=turn.lease_s)
        task = from_wire(finished.opened_task, HitlTask) if finished.HasField("opened_task") else None
        return TurnFinished(
            status=result.status,
            failure=result.failure,
            ai_position=finished.run.ai_position,
            ai_message_id=finished.run.ai_message_id,
            session_revision=finished.run.session_revision,
            usage=result.usage,
            reply=finished.reply.content,
            task=task,
        )

    def _draft(self, ask_back: AskBack | None) -> hitl_pb2.HitlTaskDraft | None:
        if ask_back is None:
            return None
        return hitl_pb2.HitlTaskDraft(
            original_question=ask_back.original_question,
            prompt=ask_back.prompt,
            options=ask_back.options,
            kind=enum_number(ask_back.kind, hitl_pb2.HitlKind.DESCRIPTOR),
            answers=ask_back.answers,
            resume_state=to_wire(ask_back.resume_state, trace_pb2.HitlResumeState),
            expire_after=Duration(seconds=int(self._hitl_expire_s)),
        )


# Storage answered, and it is about the request; any other code tells of storage itself.
_REFUSALS = {
    Kind.INVALID_ARGUMENT,
    Kind.NOT_FOUND,
    Kind.ALREADY_EXISTS,
    Kind.ABORTED,
    Kind.FAILED_PRECONDITION,
    Kind.RESOURCE_EXHAUSTED,
    Kind.UNIMPLEMENTED,
    Kind.INTERNAL,
    Kind.DATA_LOSS,
}


# Refusals that are not about the request: the same again may succeed.
_PASSING = {"CONTENTION", "OVERLOADED"}


async def _told(call: Awaitable[_Reply], *, turn: Turn | None = None) -> _Reply:
    """The reply, or the failure in the agent's own words."""
    try:
        return await call
    except ClientLeaseLost:
        raise LeaseLost(turn.run_id if turn else "") from None
    except ClientRunNotFound as error:
        if turn is None:
            raise _refused(error) from None
        raise SessionDeleted(turn.session_id) from None
    except AskbackError as error:
        raise _refused(error) from None


def _refused(error: AskbackError) -> ServiceError:
    number = error.code.value[0]
    kind = next((kind for kind in _REFUSALS if kind.value == number), None)
    if kind is None:
        return StorageUnavailable()
    if error.field_violations:
        return InvalidField([FieldViolation(each.field, each.description) for each in error.field_violations])
    return StorageRefused(
        error.message,
        kind=kind,
        reason=error.reason,
        metadata=dict(error.metadata),
        retry_after_s=error.retry_after,
    )


async def _within_lease(attempt: Callable[[], Awaitable[_Reply]], *, lease_s: float) -> _Reply:
    """Tries again, at growing distances, for as long as the lease can have lasted."""
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + lease_s, 0.1
    while True:
        try:
            return await attempt()
        except ServiceError as error:
            passing = isinstance(error, StorageUnavailable) or error.reason in _PASSING
            if not passing or loop.time() + pause_s > deadline:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 2.0)


def _window(messages: Iterable[session_pb2.Message]) -> list[HistoryMessage]:
    """The newest messages from the first question among them on: a turn is whole or left out."""
    kept = [
        HistoryMessage(MessageType(name), message.content)
        for message in messages
        if (name := enum_name(message.type, session_pb2.MessageType.DESCRIPTOR))
    ]
    first = next((i for i, message in enumerate(kept) if message.type is MessageType.HUMAN), len(kept))
    return kept[first:]


def _claimed(task: hitl_pb2.HitlTask) -> PendingHitlState | None:
    """The question to go on with; None, with a warning, where it no longer fits the protocol."""
    try:
        claimed = from_wire(task, PendingHitlState)
    except ValidationError:
        claimed = None
    if claimed is None or claimed.resume_state is None:
        log.warning("hitl_task_set_aside", task_id=task.task_id)
        return None
    return claimed


def _reply(result: TurnResult) -> session_pb2.Message | None:
    if result.reply is None:
        return None
    message = session_pb2.Message(type=session_pb2.MESSAGE_TYPE_AI, content=result.reply)
    if isinstance(result.trace, RagTrace):
        message.rag_trace.CopyFrom(to_wire(result.trace, trace_pb2.RagTrace))
    return message


def _error(failure: TurnFailure | None) -> run_pb2.RunError | None:
    if failure is None:
        return None
    return run_pb2.RunError(code=failure.code, reason=failure.reason, message=failure.message)


__all__ = ["Conversation", "StoredConversation"]
