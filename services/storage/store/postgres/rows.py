"""Columns to select, by alias, and the models that they become.

What time alone changes is worked out here: a question that has expired is EXPIRED, and no session's pending
one, from its time on. `statement_timestamp()` is the clock: within a transaction that waited for a lock,
`now()` would be too old.

A record that does not fit any more is read as far as it goes: it costs itself, not the page that it is on.
"""

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar

import structlog

from services.storage.models import (
    HitlKind,
    HitlState,
    HitlTask,
    Message,
    MessageStatus,
    MessageType,
    Run,
    RunError,
    RunStatus,
    Session,
    Usage,
)
from services.storage.store.base import MESSAGE_OVERHEAD_BYTES, QUEUE_PLACE_KEPT
from services.storage.store.postgres.database import SESSION_TTL, Row

Number = TypeVar("Number", bound=IntEnum)

_log = structlog.get_logger()

# A look-up takes a tenth of an enum's own, and a page has a thousand rows.
_BY_NUMBER: Mapping[type[IntEnum], Mapping[int, Any]] = {
    numbers: {number.value: number for number in numbers}
    for numbers in (MessageType, MessageStatus, RunStatus, HitlKind, HitlState)
}

# A time of its own counts before the one that all sessions have after their last change.
SESSION_WITHOUT_TEXTS = f"""
    s.user_id, s.session_id, s.uid, CASE WHEN s.title = '' THEN s.session_id ELSE s.title END AS title,
    s.note_through_position, s.revision, s.message_count, s.create_time, s.update_time, s.active_run_id,
    coalesce(s.expire_time, s.update_time + CAST(nullif(current_setting('{SESSION_TTL}', true), '') AS interval))
        AS expire_time,
    CASE WHEN s.pending_hitl_expire_time > statement_timestamp() THEN s.pending_hitl_task_id ELSE '' END
        AS pending_hitl_task_id"""

SESSION = f"{SESSION_WITHOUT_TEXTS}, s.note, s.metadata"
"""Of `sessions AS s`."""

BASIC_SESSION = f"{SESSION_WITHOUT_TEXTS}, '' AS note, CAST('{{}}' AS jsonb) AS metadata"

SESSION_BYTES = "octet_length(s.title) + octet_length(s.session_id) + octet_length(s.user_id) + 256"
FULL_SESSION_BYTES = f"{SESSION_BYTES} + octet_length(s.note) + octet_length(CAST(s.metadata AS text))"

RUN = """
    r.user_id, r.run_id, r.session_id, r.request_id, r.holder_id, r.status, r.fencing_token, r.lease_expire_time,
    r.cancel_requested, r.answered_task_id, r.opened_task_id, r.human_position, r.human_message_id, r.ai_position,
    r.ai_message_id, r.error_code, r.error_reason, r.error_message, r.input_tokens, r.output_tokens, r.model_calls,
    r.create_time, r.finish_time, r.session_revision, r.finish_hash"""
"""Of `runs AS r`."""

LOST_PLACE = f"""
    r.status = {RunStatus.QUEUED}
    AND r.queue_asked_time <= statement_timestamp() - interval '{QUEUE_PLACE_KEPT.total_seconds()} seconds'"""
"""Of `runs AS r`: whether it has lost its place in the queue, as if it had never come."""

_EXPIRED = f"t.state = {HitlState.PENDING} AND t.expire_time <= statement_timestamp()"

HITL_TASK = f"""
    t.user_id, t.task_id, t.session_id, t.run_id, t.original_question, t.prompt, t.options, t.kind, t.answers,
    t.resume_state, CASE WHEN {_EXPIRED} THEN {HitlState.EXPIRED} ELSE t.state END AS state, t.create_time,
    t.expire_time,
    CASE WHEN {_EXPIRED} THEN t.expire_time ELSE t.resolve_time END AS resolve_time, t.answer, t.answered_by_run_id"""
"""Of `hitl_tasks AS t`."""

HITL_TASK_BYTES = """
    octet_length(t.original_question) + octet_length(t.prompt) + octet_length(CAST(t.options AS text))
    + octet_length(CAST(t.answers AS text)) + octet_length(t.resume_state) + octet_length(t.answer)
    + octet_length(t.session_id) + octet_length(t.user_id) + 256"""

MESSAGE = """
    m.position, m.message_id, m.type, m.status, m.content, m.create_time AS message_create_time, m.run_id, m.trace,
    m.extra_json"""
"""Of `messages AS m`; no name of it is a session's too, so that one row can hold both."""

MESSAGE_WITHOUT_TRACE = MESSAGE.replace("m.trace", "CAST(NULL AS bytea) AS trace")

MESSAGE_NAMES = MESSAGE.replace("m.create_time AS ", "m.")
"""Of a subquery `AS m` that selects MESSAGE."""

# The lengths of large values are read without the values.
MESSAGE_BYTES = f"""
    octet_length(m.content) + octet_length(m.extra_json) + octet_length(m.message_id) + octet_length(m.run_id)
    + {MESSAGE_OVERHEAD_BYTES}"""
MESSAGE_WITH_TRACE_BYTES = f"{MESSAGE_BYTES} + coalesce(octet_length(m.trace), 0)"


def to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# By item, not by attribute: that costs a twentieth, and a page has ten thousand of them.
def to_session(row: Row) -> Session:
    return Session(
        user_id=row["user_id"],
        session_id=row["session_id"],
        uid=row["uid"],
        title=row["title"],
        note=row["note"],
        note_through_position=row["note_through_position"],
        metadata=_object(row["metadata"]),
        revision=row["revision"],
        message_count=row["message_count"],
        create_time=row["create_time"],
        update_time=row["update_time"],
        expire_time=row["expire_time"],
        active_run_id=row["active_run_id"],
        pending_hitl_task_id=row["pending_hitl_task_id"],
    )


def to_message(row: Row) -> Message:
    return Message(
        position=row["position"],
        message_id=row["message_id"],
        type=_known(MessageType, row["type"]),
        status=_known(MessageStatus, row["status"]),
        content=row["content"],
        create_time=row["message_create_time"],
        run_id=row["run_id"],
        trace=row["trace"],
        extra_json=row["extra_json"],
    )


def to_run(row: Row) -> Run:
    return Run(
        run_id=row["run_id"],
        user_id=row["user_id"],
        session_id=row["session_id"],
        request_id=row["request_id"],
        status=_known(RunStatus, row["status"]),
        answered_task_id=row["answered_task_id"],
        human_position=row["human_position"],
        human_message_id=row["human_message_id"],
        ai_position=row["ai_position"],
        ai_message_id=row["ai_message_id"],
        lease_expire_time=row["lease_expire_time"],
        cancel_requested=row["cancel_requested"],
        error=None
        if row["error_code"] is None
        else RunError(code=row["error_code"], reason=row["error_reason"], message=row["error_message"]),
        usage=None
        if row["input_tokens"] is None
        else Usage(
            input_tokens=row["input_tokens"], output_tokens=row["output_tokens"], model_calls=row["model_calls"]
        ),
        create_time=row["create_time"],
        finish_time=row["finish_time"],
        session_revision=row["session_revision"],
    )


def to_hitl_task(row: Row) -> HitlTask:
    return HitlTask(
        task_id=row["task_id"],
        user_id=row["user_id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        original_question=row["original_question"],
        prompt=row["prompt"],
        options=tuple(row["options"]),
        kind=_known(HitlKind, row["kind"]),
        answers=tuple(row["answers"]),
        resume_state=row["resume_state"],
        state=_known(HitlState, row["state"]),
        create_time=row["create_time"],
        expire_time=row["expire_time"],
        resolve_time=row["resolve_time"],
        answer=row["answer"],
        answered_by_run_id=row["answered_by_run_id"],
    )


def _known(numbers: type[Number], stored: int) -> Number:
    known: Number | None = _BY_NUMBER[numbers].get(stored)
    if known is not None:
        return known
    _log.warning("stored_number_unknown", of=numbers.__name__, number=stored)
    return numbers(0)


def _object(stored: str | None) -> Mapping[str, Any]:
    # Most sessions have none of it.
    if stored == "{}":
        return {}
    read = json.loads(stored) if stored else None
    if isinstance(read, dict):
        return read
    _log.warning("stored_metadata_unreadable", type=type(read).__name__)
    return {}
