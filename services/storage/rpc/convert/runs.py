"""Runs on their way in: begun, written to, finished, named and listed."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from askback.storage.v1 import run_pb2, run_service_pb2
from services.runtime import page_token
from services.runtime.page_token import PagedQuery
from services.storage.models import (
    REPLY_STATUS,
    ConflictPolicy,
    PendingHitlPolicy,
    RunError,
    RunEvent,
    RunStatus,
    Usage,
)
from services.storage.rpc.checks import Checks
from services.storage.rpc.convert.fields import (
    MAX_MESSAGE_BYTES,
    MAX_TITLE_BYTES,
    by_number,
    hash_of,
    session_of,
)
from services.storage.rpc.convert.hitl import opened_task
from services.storage.rpc.convert.messages import reply
from services.storage.store.commands import BeginRun, FinishRun
from services.storage.store.results import RunCursor

MAX_CONTEXT_MESSAGES = 100
MAX_ERROR_CHARACTERS = 1_024
MAX_EVENTS = 1_000
MAX_PAYLOAD_BYTES = 1_024 * 1_024
MAX_REPLY_TEXT_BYTES = 64 * 1_024
SHORTEST_LEASE, LONGEST_LEASE = timedelta(seconds=5), timedelta(minutes=10)
LONGEST_PATIENCE_S = 10.0
# Of the caller's deadline, for the way back and for what is still to be stored.
KEPT_OF_DEADLINE_S = 0.5

_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,62}")
_LAST_CODE = 16

_PENDING_HITL_POLICIES = {0: PendingHitlPolicy.ANSWER, **by_number(PendingHitlPolicy)}
_CONFLICT_POLICIES = {0: ConflictPolicy.REJECT, **by_number(ConflictPolicy)}
_ENDINGS = {status.value: status for status in REPLY_STATUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRuns:
    query: PagedQuery
    session_id: str
    page_size: int
    after: RunCursor | None


def begin_run(
    request: run_service_pb2.BeginRunRequest, *, lease: timedelta, time_remaining_s: float | None
) -> BeginRun:
    """The turn asked for; `lease` is the one of a request that names none, and None a deadline that is none."""
    checks = Checks()
    if request.HasField("lease"):
        lease = checks.duration("lease", request.lease, at_least=SHORTEST_LEASE, at_most=LONGEST_LEASE)
    if request.retries_run_id:
        # Both are that run's own.
        for field in ("message", "answers_task_id"):
            if getattr(request, field):
                checks.refuse(field, "must be empty where retries_run_id is given")
    begun = BeginRun(
        user_id=checks.name("user_id", request.user_id),
        session_id=checks.optional_name("session_id", request.session_id),
        request_id=checks.optional_name("request_id", request.request_id),
        request_hash=hash_of(_without_an_attempts_own(request)),
        message=checks.text("message", request.message, at_most=MAX_MESSAGE_BYTES, required=not request.retries_run_id),
        answers_task_id=checks.optional_name("answers_task_id", request.answers_task_id),
        pending_hitl_policy=checks.choice(
            "pending_hitl_policy",
            request.pending_hitl_policy,
            _PENDING_HITL_POLICIES,
            otherwise=PendingHitlPolicy.ANSWER,
        ),
        conflict_policy=checks.choice(
            "conflict_policy", request.conflict_policy, _CONFLICT_POLICIES, otherwise=ConflictPolicy.REJECT
        ),
        patience=_patience(time_remaining_s),
        retries_run_id=checks.optional_name("retries_run_id", request.retries_run_id),
        lease=lease,
        max_context_messages=checks.number(
            "max_context_messages", request.max_context_messages, at_least=0, at_most=MAX_CONTEXT_MESSAGES
        ),
        holder_id=checks.optional_name("holder_id", request.holder_id),
        title_if_new=checks.text("title_if_new", request.title_if_new, at_most=MAX_TITLE_BYTES),
    )
    checks.done()
    return begun


def _without_an_attempts_own(request: run_service_pb2.BeginRunRequest) -> run_service_pb2.BeginRunRequest:
    """All that an attempt makes up for itself is left out: a retry is the same request."""
    asked = run_service_pb2.BeginRunRequest()
    asked.CopyFrom(request)
    for field in ("request_id", "holder_id", "lease", "max_context_messages", "title_if_new"):
        asked.ClearField(field)
    return asked


def _patience(time_remaining_s: float | None) -> timedelta:
    left_s = LONGEST_PATIENCE_S if time_remaining_s is None else time_remaining_s - KEPT_OF_DEADLINE_S
    return timedelta(seconds=min(LONGEST_PATIENCE_S, max(0.0, left_s)))


def append_run_events(
    request: run_service_pb2.AppendRunEventsRequest,
) -> tuple[tuple[str, str], tuple[RunEvent, ...]]:
    """The user_id and run_id, and the events."""
    checks = Checks()
    name = checks.name("user_id", request.user_id), checks.name("run_id", request.run_id)
    count = len(request.events)
    if not 1 <= count <= MAX_EVENTS:
        checks.refuse("events", f"must be 1 to {MAX_EVENTS:,} events")
        checks.done()
    events, before = [], 0
    for place, event in enumerate(request.events):
        field = f"events[{place}]"
        if event.sequence <= before:
            checks.refuse(f"{field}.sequence", "must be 1 or more, and more than the one before")
        if len(event.payload) > MAX_PAYLOAD_BYTES:
            checks.refuse(f"{field}.payload", f"must be at most {MAX_PAYLOAD_BYTES:,} bytes")
        if event.last and place < count - 1:
            checks.refuse(f"{field}.last", "must be set on the last event alone")
        text = checks.text(f"{field}.reply_text", event.reply_text, at_most=MAX_REPLY_TEXT_BYTES)
        events.append(RunEvent(sequence=event.sequence, payload=event.payload, last=event.last, reply_text=text))
        before = max(before, event.sequence)
    checks.done()
    return name, tuple(events)


def finish_run(request: run_service_pb2.FinishRunRequest, *, expire_after: timedelta) -> FinishRun:
    """How the turn ended; `expire_after` is that of a question that names none."""
    checks = Checks()
    status = checks.choice("status", request.status, _ENDINGS, otherwise=RunStatus.COMPLETED)
    opens = request.HasField("opened_task")
    if opens != (status is RunStatus.AWAITING_INPUT):
        checks.refuse("opened_task", "must come with AWAITING_INPUT, and with no other status")
    if request.HasField("error") and status not in (RunStatus.FAILED, RunStatus.CANCELLED):
        checks.refuse("error", "must not come with a run that did not fail")
    finished = FinishRun(
        user_id=checks.name("user_id", request.user_id),
        run_id=checks.name("run_id", request.run_id),
        fencing_token=request.fencing_token,
        request_hash=hash_of(request),
        status=status,
        reply=reply(checks, request.reply, status) if request.HasField("reply") else None,
        metadata=checks.metadata("metadata", request.metadata),
        opened_task=opened_task(checks, request.opened_task, expire_after=expire_after) if opens else None,
        error=_run_error(checks, request.error) if request.HasField("error") else None,
        usage=_usage(checks, request.usage) if request.HasField("usage") else None,
    )
    checks.done()
    return finished


def run_name(
    request: run_service_pb2.GetRunRequest | run_service_pb2.RenewRunRequest | run_service_pb2.CancelRunRequest,
) -> tuple[str, str]:
    """The user_id and run_id."""
    checks = Checks()
    name = checks.name("user_id", request.user_id), checks.name("run_id", request.run_id)
    checks.done()
    return name


def list_runs(request: run_service_pb2.ListRunsRequest) -> ListRuns:
    checks = Checks()
    user_id, session_id = session_of(checks, request)
    page_size = checks.page_size(request.page_size)
    checks.done()
    query = PagedQuery("ListRuns", user_id, (session_id,))
    after = RunCursor(*page_token.decode(query, token, datetime, str)) if (token := request.page_token) else None
    return ListRuns(query=query, session_id=session_id, page_size=page_size, after=after)


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
