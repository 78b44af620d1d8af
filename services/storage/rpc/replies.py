"""Model to wire: what the store returns, as its caller gets it."""

from dataclasses import asdict
from datetime import UTC, datetime

import structlog
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as WireMessage
from google.protobuf.timestamp_pb2 import Timestamp

from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import hitl_service_pb2, run_pb2, run_service_pb2, session_pb2, session_service_pb2
from services.runtime import page_token
from services.runtime.page_token import PagedQuery
from services.storage.models import HitlTask, Message, Run, Session
from services.storage.rpc.fairness import Turns
from services.storage.store.results import (
    AppendedMessages,
    BegunRun,
    FinishedRun,
    HitlTaskCursor,
    HitlTaskPage,
    RunPage,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_OF_DAY = 86_400

_log = structlog.get_logger()


def session(kept: Session) -> session_pb2.Session:
    wire = session_pb2.Session(
        user_id=kept.user_id,
        session_id=kept.session_id,
        title=kept.title,
        note=kept.note,
        revision=kept.revision,
        message_count=kept.message_count,
        create_time=_time(kept.create_time),
        update_time=_time(kept.update_time),
        expire_time=_time(kept.expire_time),
        active_run_id=kept.active_run_id,
        pending_hitl_task_id=kept.pending_hitl_task_id,
        note_through_position=kept.note_through_position,
        uid=kept.uid,
    )
    if kept.metadata:
        wire.metadata.update(kept.metadata)
    return wire


def message_without_trace(kept: Message) -> session_pb2.Message:
    return session_pb2.Message(
        position=kept.position,
        message_id=kept.message_id,
        type=session_pb2.MessageType.ValueType(kept.type),
        content=kept.content,
        create_time=_time(kept.create_time),
        status=session_pb2.MessageStatus.ValueType(kept.status),
        run_id=kept.run_id,
        extra_json=kept.extra_json,
    )


def message(kept: Message) -> session_pb2.Message:
    wire = message_without_trace(kept)
    if kept.trace and not _read_into(wire.rag_trace, kept.trace):
        _log.warning("trace_unreadable", message_id=kept.message_id)
        wire.ClearField("rag_trace")
    return wire


def run(kept: Run) -> run_pb2.Run:
    wire = run_pb2.Run(
        run_id=kept.run_id,
        user_id=kept.user_id,
        session_id=kept.session_id,
        request_id=kept.request_id,
        status=run_pb2.RunStatus.ValueType(kept.status),
        answered_task_id=kept.answered_task_id,
        human_position=kept.human_position,
        ai_position=kept.ai_position,
        lease_expire_time=_time(kept.lease_expire_time),
        cancel_requested=kept.cancel_requested,
        create_time=_time(kept.create_time),
        finish_time=_time(kept.finish_time),
        human_message_id=kept.human_message_id,
        ai_message_id=kept.ai_message_id,
        session_revision=kept.session_revision,
    )
    if error := kept.error:
        wire.error.CopyFrom(run_pb2.RunError(code=error.code, reason=error.reason, message=error.message))
    if usage := kept.usage:
        wire.usage.CopyFrom(run_pb2.Usage(**asdict(usage)))
    return wire


def hitl_task(kept: HitlTask) -> hitl_pb2.HitlTask:
    wire = hitl_pb2.HitlTask(
        task_id=kept.task_id,
        user_id=kept.user_id,
        session_id=kept.session_id,
        run_id=kept.run_id,
        original_question=kept.original_question,
        prompt=kept.prompt,
        options=kept.options,
        kind=hitl_pb2.HitlKind.ValueType(kept.kind),
        answers=kept.answers,
        state=hitl_pb2.HitlState.ValueType(kept.state),
        create_time=_time(kept.create_time),
        expire_time=_time(kept.expire_time),
        resolve_time=_time(kept.resolve_time),
        answer=kept.answer,
        answered_by_run_id=kept.answered_by_run_id,
    )
    if kept.resume_state and not _read_into(wire.resume_state, kept.resume_state):
        _log.warning("resume_state_unreadable", task_id=kept.task_id)
        wire.ClearField("resume_state")
    wire.retrieval_status = wire.resume_state.retrieval_status
    return wire


def begun_run(begun: BegunRun) -> run_service_pb2.BeginRunResponse:
    return run_service_pb2.BeginRunResponse(
        run=run(begun.run),
        already_begun=begun.already_begun,
        is_holder=begun.is_holder,
        fencing_token=begun.fencing_token,
        context_truncated=begun.context_truncated,
        queued_ahead=begun.queued_ahead,
        session=session(begun.session),
        context=map(message, begun.context),
        claimed_task=None if begun.claimed_task is None else hitl_task(begun.claimed_task),
        human_message=None if begun.human_message is None else message(begun.human_message),
    )


def finished_run(finished: FinishedRun) -> run_service_pb2.FinishRunResponse:
    return run_service_pb2.FinishRunResponse(
        run=run(finished.run),
        session=session(finished.session),
        reply=None if finished.reply is None else message(finished.reply),
        opened_task=None if finished.opened_task is None else hitl_task(finished.opened_task),
    )


def run_page(query: PagedQuery, page: RunPage) -> run_service_pb2.ListRunsResponse:
    next_page_token = "" if page.next is None else page_token.encode(query, (page.next.create_time, page.next.run_id))
    return run_service_pb2.ListRunsResponse(runs=map(run, page.runs), next_page_token=next_page_token)


async def appended_messages(appended: AppendedMessages) -> session_service_pb2.AppendMessagesResponse:
    wire, turns = session_service_pb2.AppendMessagesResponse(session=session(appended.session)), Turns()
    for kept in appended.messages:
        wire.messages.append(message(kept))
        await turns.pause()
    return wire


def hitl_task_page(query: PagedQuery, page: HitlTaskPage) -> hitl_service_pb2.ListHitlTasksResponse:
    return hitl_service_pb2.ListHitlTasksResponse(
        tasks=map(hitl_task, page.tasks),
        next_page_token=_task_token(query, page.next),
    )


def _task_token(query: PagedQuery, cursor: HitlTaskCursor | None) -> str:
    return "" if cursor is None else page_token.encode(query, (cursor.create_time, cursor.task_id))


def _time(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    # What FromDatetime does, at a quarter of its cost: there are three in every reply.
    since = moment - _EPOCH
    return Timestamp(seconds=since.days * _SECONDS_OF_DAY + since.seconds, nanos=since.microseconds * 1_000)


def _read_into(wire: WireMessage, encoded: bytes) -> bool:
    """Whether it could be read: one bad record costs that record, not the row or the page around it."""
    try:
        wire.ParseFromString(encoded)
    except DecodeError:
        return False
    return True
