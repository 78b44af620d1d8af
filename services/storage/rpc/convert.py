"""Wire to model: a request is validated here, once and whole, and becomes what the store takes."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import Message as WireMessage

from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import hitl_service_pb2, run_pb2, run_service_pb2, session_pb2, session_service_pb2
from services.runtime import page_token
from services.runtime.errors import NotImplementedYet
from services.runtime.page_token import PagedQuery
from services.storage.models import (
    REPLY_STATUS,
    HitlKind,
    HitlState,
    HitlTaskDraft,
    MessageType,
    NewMessage,
    PendingHitlPolicy,
    RunError,
    RunStatus,
    Usage,
)
from services.storage.rpc.checks import Checks
from services.storage.rpc.trace import MAX_TRACE_BYTES, MAX_TRACE_PARTS, bounded, has_too_many_parts, normalized
from services.storage.store.base import BeginRun, FinishRun, HitlTaskCursor, SessionCursor

MAX_MESSAGE_BYTES = 32_768
MAX_CONTENT_BYTES = 1_024 * 1_024
MAX_TITLE_BYTES = 1_024
MAX_CONTEXT_MESSAGES = 100
MAX_OPTIONS = 20
MAX_OPTION_BYTES = 1_024
MAX_ANSWERS = 100
MAX_SUB_QUESTIONS = 4
MAX_ERROR_CHARACTERS = 1_024
SHORTEST_LEASE, LONGEST_LEASE = timedelta(seconds=5), timedelta(minutes=10)
SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=1), timedelta(days=365)

_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,62}")
_LAST_CODE = 16

Choice = TypeVar("Choice", bound=IntEnum)


class SessionView(IntEnum):
    BASIC = 1
    FULL = 2
    ID = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSessions:
    query: PagedQuery
    page_size: int
    after: SessionCursor | None
    view: SessionView


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMessages:
    query: PagedQuery
    session_id: str
    page_size: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHitlTasks:
    query: PagedQuery
    session_id: str
    state: HitlState | None
    page_size: int
    after: HitlTaskCursor | None


def begin_run(request: run_service_pb2.BeginRunRequest, *, lease: timedelta) -> BeginRun:
    """The turn asked for; `lease` is the one of a request that names none."""
    checks = Checks()
    if request.HasField("lease"):
        lease = checks.duration("lease", request.lease, at_least=SHORTEST_LEASE, at_most=LONGEST_LEASE)
    begun = BeginRun(
        user_id=checks.name("user_id", request.user_id),
        session_id=checks.optional_name("session_id", request.session_id),
        request_id=checks.optional_name("request_id", request.request_id),
        # All that an attempt makes up for itself is left out: a retry is the same request.
        request_hash=_hash(request, "request_id", "holder_id", "lease", "max_context_messages", "title_if_new"),
        # A run that retries another takes its message from there.
        message=checks.text("message", request.message, at_most=MAX_MESSAGE_BYTES, required=not request.retries_run_id),
        answers_task_id=checks.optional_name("answers_task_id", request.answers_task_id),
        pending_hitl_policy=checks.choice(
            "pending_hitl_policy",
            request.pending_hitl_policy or PendingHitlPolicy.ANSWER,
            _by_number(PendingHitlPolicy),
            otherwise=PendingHitlPolicy.ANSWER,
        ),
        lease=lease,
        max_context_messages=checks.number(
            "max_context_messages", request.max_context_messages, at_least=0, at_most=MAX_CONTEXT_MESSAGES
        ),
        holder_id=checks.optional_name("holder_id", request.holder_id),
        title_if_new=checks.text("title_if_new", request.title_if_new, at_most=MAX_TITLE_BYTES),
    )
    policies = run_pb2.ConflictPolicy.DESCRIPTOR.values_by_number
    policy = checks.choice("conflict_policy", request.conflict_policy, policies, otherwise=policies[0])
    checks.optional_name("retries_run_id", request.retries_run_id)
    checks.done()
    if policy.number not in (run_pb2.CONFLICT_POLICY_UNSPECIFIED, run_pb2.CONFLICT_POLICY_REJECT):
        raise NotImplementedYet(policy.name)
    if request.retries_run_id:
        raise NotImplementedYet("retries_run_id")
    return begun


def finish_run(request: run_service_pb2.FinishRunRequest, *, expire_after: timedelta) -> FinishRun:
    """How the turn ended; `expire_after` is that of a question that names none."""
    checks = Checks()
    statuses = {status.value: status for status in REPLY_STATUS}
    status = checks.choice("status", request.status, statuses, otherwise=RunStatus.COMPLETED)
    if request.HasField("opened_task") != (status is RunStatus.AWAITING_INPUT):
        checks.refuse("opened_task", "must come with AWAITING_INPUT, and with no other status")
    if request.HasField("error") and status not in (RunStatus.FAILED, RunStatus.CANCELLED):
        checks.refuse("error", "must not come with a run that did not fail")
    finished = FinishRun(
        user_id=checks.name("user_id", request.user_id),
        run_id=checks.name("run_id", request.run_id),
        fencing_token=request.fencing_token,
        request_hash=_hash(request),
        status=status,
        reply=_reply(checks, request.reply, status) if request.HasField("reply") else None,
        metadata=checks.metadata("metadata", request.metadata),
        opened_task=(
            _opened_task(checks, request.opened_task, expire_after) if request.HasField("opened_task") else None
        ),
        error=_run_error(checks, request.error) if request.HasField("error") else None,
        usage=_usage(checks, request.usage) if request.HasField("usage") else None,
    )
    checks.done()
    return finished


def run_name(request: run_service_pb2.GetRunRequest | run_service_pb2.RenewRunRequest) -> tuple[str, str]:
    """The user_id and run_id."""
    checks = Checks()
    name = checks.name("user_id", request.user_id), checks.name("run_id", request.run_id)
    checks.done()
    return name


def task_name(request: hitl_service_pb2.GetHitlTaskRequest) -> tuple[str, str]:
    """The user_id and task_id."""
    checks = Checks()
    name = checks.name("user_id", request.user_id), checks.name("task_id", request.task_id)
    checks.done()
    return name


def session_name(request: session_service_pb2.GetSessionRequest) -> tuple[str, str]:
    """The user_id and session_id."""
    checks = Checks()
    name = _session_name(checks, request)
    checks.done()
    return name


def load_session(request: session_service_pb2.LoadSessionRequest) -> tuple[str, str, int]:
    """The user_id, the session_id, and how many messages at most; 0: all."""
    checks = Checks()
    asked = *_session_name(checks, request), checks.number("max_messages", request.max_messages, at_least=0)
    checks.done()
    return asked


def message_name(request: session_service_pb2.GetMessageRequest) -> tuple[str, str, str]:
    """The user_id, session_id and message_id."""
    checks = Checks()
    name = *_session_name(checks, request), checks.name("message_id", request.message_id)
    checks.done()
    return name


def delete_session(request: session_service_pb2.DeleteSessionRequest) -> tuple[str, str, str, bytes]:
    """The user_id, session_id and request_id, and the request's hash."""
    checks = Checks()
    asked = *_session_name(checks, request), checks.optional_name("request_id", request.request_id)
    checks.done()
    return *asked, _hash(request, "request_id")


def list_sessions(request: session_service_pb2.ListSessionsRequest) -> ListSessions:
    checks = Checks()
    query = PagedQuery("ListSessions", checks.name("user_id", request.user_id))
    page_size = checks.page_size(request.page_size)
    view = checks.choice(
        "view", request.view or SessionView.BASIC, _by_number(SessionView), otherwise=SessionView.BASIC
    )
    checks.done()
    after = SessionCursor(*page_token.decode(query, token, datetime, str)) if (token := request.page_token) else None
    return ListSessions(query=query, page_size=page_size, after=after, view=view)


def list_messages(request: session_service_pb2.ListMessagesRequest) -> ListMessages:
    checks = Checks()
    user_id, session_id = _session_name(checks, request)
    page_size = checks.page_size(request.page_size)
    checks.done()
    query = PagedQuery("ListMessages", user_id, (session_id, request.descending))
    after = page_token.decode(query, request.page_token, int)[0] if request.page_token else None
    return ListMessages(query=query, session_id=session_id, page_size=page_size, after=after)


def list_hitl_tasks(request: hitl_service_pb2.ListHitlTasksRequest) -> ListHitlTasks:
    checks = Checks()
    user_id = checks.name("user_id", request.user_id)
    session_id = checks.optional_name("session_id", request.session_id)
    states: dict[int, HitlState | None] = {0: None, **_by_number(HitlState)}
    state = checks.choice("state", request.state, states, otherwise=None)
    page_size = checks.page_size(request.page_size)
    checks.done()
    query = PagedQuery("ListHitlTasks", user_id, (session_id, state or 0))
    after = HitlTaskCursor(*page_token.decode(query, token, datetime, str)) if (token := request.page_token) else None
    return ListHitlTasks(query=query, session_id=session_id, state=state, page_size=page_size, after=after)


_OfSession = (
    session_service_pb2.GetSessionRequest
    | session_service_pb2.LoadSessionRequest
    | session_service_pb2.ListMessagesRequest
    | session_service_pb2.GetMessageRequest
    | session_service_pb2.DeleteSessionRequest
)


def _session_name(checks: Checks, request: _OfSession) -> tuple[str, str]:
    return checks.name("user_id", request.user_id), checks.name("session_id", request.session_id)


def _reply(checks: Checks, reply: session_pb2.Message, status: RunStatus) -> NewMessage:
    checks.choice(
        "reply.type", reply.type or MessageType.AI, {MessageType.AI: MessageType.AI}, otherwise=MessageType.AI
    )
    follows = REPLY_STATUS[status]
    if reply.status not in (session_pb2.MESSAGE_STATUS_UNSPECIFIED, follows):
        checks.refuse("reply.status", f"must be {follows.name}, as the run is {status.name}, or left out")
    return NewMessage(
        type=MessageType.AI,
        message_id=checks.optional_name("reply.message_id", reply.message_id),
        content=checks.text("reply.content", reply.content, at_most=MAX_CONTENT_BYTES),
        trace=_trace(checks, reply.rag_trace) if reply.HasField("rag_trace") else None,
        extra_json=checks.json_object("reply.extra_json", reply.extra_json),
    )


def _trace(checks: Checks, trace: trace_pb2.RagTrace) -> bytes:
    if has_too_many_parts(trace):
        checks.refuse("reply.rag_trace", f"must be at most {MAX_TRACE_PARTS:,} chunks and other parts")
        return b""
    kept = bounded(normalized(trace))
    if kept.ByteSize() > MAX_TRACE_BYTES:
        checks.refuse("reply.rag_trace", f"must be at most {MAX_TRACE_BYTES:,} bytes without its texts")
    return kept.SerializeToString()


def _opened_task(checks: Checks, draft: hitl_pb2.HitlTaskDraft, expire_after: timedelta) -> HitlTaskDraft:
    if draft.HasField("expire_after"):
        expire_after = checks.duration(
            "opened_task.expire_after", draft.expire_after, at_least=SHORTEST_WAIT, at_most=LONGEST_WAIT
        )
    return HitlTaskDraft(
        original_question=checks.text(
            "opened_task.original_question", draft.original_question, at_most=MAX_MESSAGE_BYTES, required=True
        ),
        prompt=checks.text("opened_task.prompt", draft.prompt, at_most=MAX_MESSAGE_BYTES, required=True),
        options=_texts(checks, "opened_task.options", draft.options, count=MAX_OPTIONS, at_most=MAX_OPTION_BYTES),
        kind=checks.choice("opened_task.kind", draft.kind, _by_number(HitlKind), otherwise=HitlKind.CLARIFY),
        answers=_texts(checks, "opened_task.answers", draft.answers, count=MAX_ANSWERS, at_most=MAX_MESSAGE_BYTES),
        resume_state=_resume_state(checks, draft.resume_state),
        expire_after=expire_after,
    )


def _texts(checks: Checks, field: str, values: Sequence[str], *, count: int, at_most: int) -> tuple[str, ...]:
    if len(values) > count:
        checks.refuse(field, f"must be at most {count} texts")
    return tuple(
        checks.text(f"{field}[{place}]", value, at_most=at_most, required=True)
        for place, value in enumerate(values[:count])
    )


def _resume_state(checks: Checks, state: trace_pb2.HitlResumeState) -> bytes:
    field = "opened_task.resume_state"
    checks.text(f"{field}.question", state.question, at_most=MAX_MESSAGE_BYTES)
    checks.text(f"{field}.complexity_reason", state.complexity_reason, at_most=MAX_MESSAGE_BYTES)
    checks.optional_name(f"{field}.collection", state.collection)
    checks.number(f"{field}.rewrite_count", state.rewrite_count, at_least=0)
    _texts(checks, f"{field}.sub_questions", state.sub_questions, count=MAX_SUB_QUESTIONS, at_most=MAX_MESSAGE_BYTES)
    for name, enum in (
        ("route", trace_pb2.Route),
        ("retrieval_status", trace_pb2.RetrievalStatus),
        ("complexity", trace_pb2.Complexity),
    ):
        checks.choice(f"{field}.{name}", getattr(state, name), enum.DESCRIPTOR.values_by_number, otherwise=None)
    return state.SerializeToString()


def _run_error(checks: Checks, error: run_pb2.RunError) -> RunError:
    """Its text is cut and cleaned, never refused: no turn is lost to its error."""
    if error.reason and not _REASON.fullmatch(error.reason):
        checks.refuse("error.reason", "must be the name of an ErrorReason")
    return RunError(
        code=checks.number("error.code", error.code, at_least=0, at_most=_LAST_CODE),
        reason=error.reason,
        message=error.message.replace("\0", "")[:MAX_ERROR_CHARACTERS],
    )


def _usage(checks: Checks, usage: run_pb2.Usage) -> Usage:
    return Usage(
        input_tokens=checks.number("usage.input_tokens", usage.input_tokens, at_least=0),
        output_tokens=checks.number("usage.output_tokens", usage.output_tokens, at_least=0),
        model_calls=checks.number("usage.model_calls", usage.model_calls, at_least=0),
    )


def _by_number(choices: type[Choice]) -> dict[int, Choice]:
    return {choice.value: choice for choice in choices if choice.value}


def _hash(request: WireMessage, *left_out: str) -> bytes:
    """The same for two requests that ask for the same, however their bytes were written."""
    if left_out:
        asked = type(request)()
        asked.CopyFrom(request)
        for field in left_out:
            asked.ClearField(field)
        request = asked
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
