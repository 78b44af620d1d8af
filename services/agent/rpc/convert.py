"""Wire to model and back for the agent's services; all that a caller may send is checked here, once."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from askback.agent.v1 import agent_service_pb2, chat_pb2
from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2
from services.agent.request_context import RagStep
from services.agent.rpc import names
from services.agent.texts import MAX_TEXT_BYTES
from services.agent.turn import (
    AskedBack,
    ContentDelta,
    Heartbeat,
    PendingHitlPolicy,
    SessionTitled,
    TraceTold,
    TurnEvent,
    TurnFailure,
    TurnFinished,
    TurnRequest,
    TurnStarted,
)
from services.agent.usage import Usage
from services.agent.wire import enum_number, to_wire
from services.runtime.checks import Checks
from services.runtime.errors import NotImplementedYet

_POLICIES = {0: None, 1: PendingHitlPolicy.ANSWER, 2: PendingHitlPolicy.REPLACE, 3: PendingHitlPolicy.REJECT}


def turn_request(request: agent_service_pb2.ChatRequest) -> TurnRequest:
    """Raises InvalidField, or NotImplementedYet for what this version would have to ignore."""
    checks = Checks()
    for name, enum in (
        ("conflict_policy", run_pb2.ConflictPolicy.DESCRIPTOR),
        ("disconnect_policy", agent_service_pb2.DisconnectPolicy.DESCRIPTOR),
    ):
        checks.choice(name, getattr(request, name), enum.values_by_number, otherwise=None)
    checks.optional_name("retries_run_id", request.retries_run_id)
    retried = bool(request.retries_run_id)
    if retried and request.message:
        checks.refuse("message", "must be empty where retries_run_id is set")
    turn = TurnRequest(
        user_id=checks.name("user_id", request.user_id),
        session_id=checks.optional_name("session_id", request.session_id),
        message=checks.text("message", request.message, at_most=MAX_TEXT_BYTES, required=not retried),
        request_id=checks.optional_name("request_id", request.request_id),
        answers_task_id=checks.optional_name("answers_task_id", request.answers_task_id),
        pending_hitl_policy=checks.choice(
            "pending_hitl_policy", request.pending_hitl_policy, _POLICIES, otherwise=None
        ),
        collection=names.optional_collection(checks, "collection", request.collection),
    )
    if request.message and not request.message.strip():
        checks.refuse("message", "must hold more than white space")
    checks.done()
    _refuse_what_is_not_implemented(request)
    return turn


def _refuse_what_is_not_implemented(request: agent_service_pb2.ChatRequest) -> None:
    if request.conflict_policy > run_pb2.CONFLICT_POLICY_REJECT:
        raise NotImplementedYet(run_pb2.ConflictPolicy.Name(request.conflict_policy))
    if request.disconnect_policy == agent_service_pb2.DISCONNECT_POLICY_CONTINUE:
        raise NotImplementedYet("DISCONNECT_POLICY_CONTINUE")
    if request.HasField("reconnect_grace"):
        raise NotImplementedYet("reconnect_grace")
    if request.retries_run_id:
        raise NotImplementedYet("retries_run_id")


class EventWriter:
    """Numbers a run's events and puts them into their envelope."""

    def __init__(self) -> None:
        self._run_id = ""
        self._sequence = 0

    def chat_event(self, event: TurnEvent) -> chat_pb2.ChatEvent:
        if isinstance(event, TurnStarted):
            self._run_id = event.turn.run_id
        written = chat_pb2.ChatEvent(run_id=self._run_id, time=_now())
        if isinstance(event, Heartbeat):
            written.heartbeat.SetInParent()
            return written
        self._sequence += 1
        written.sequence = self._sequence
        match event:
            case TurnStarted(turn):
                written.started.session_id = turn.session_id
                written.started.request_id = turn.request_id
                written.started.answered_task_id = turn.answered_task_id
                written.started.human_position = turn.human_position
                written.started.human_message_id = turn.human_message_id
            case SessionTitled(title):
                written.titled.title = title
            case RagStep():
                written.rag_step.CopyFrom(rag_step(event))
            case ContentDelta(text):
                written.content.text = text
            case TraceTold(trace):
                written.rag_trace.CopyFrom(to_wire(trace, trace_pb2.RagTrace))
            case AskedBack(task):
                written.hitl_request.CopyFrom(to_wire(task, hitl_pb2.HitlTask))
            case TurnFinished():
                written.finished.CopyFrom(run_finished(event))
        return written


class ChatCollector:
    """Gathers a turn's events into the one reply of a unary call."""

    def __init__(self) -> None:
        self.response = agent_service_pb2.ChatResponse()

    def add(self, event: TurnEvent) -> None:
        match event:
            case TurnStarted(turn):
                self.response.run_id = turn.run_id
                self.response.session_id = turn.session_id
            case TraceTold(trace):
                self.response.rag_trace.CopyFrom(to_wire(trace, trace_pb2.RagTrace))
            case AskedBack(task):
                self.response.hitl_request.CopyFrom(to_wire(task, hitl_pb2.HitlTask))
            case TurnFinished():
                self.response.response = event.reply
                self.response.finished.CopyFrom(run_finished(event))


def rag_step(step: RagStep) -> chat_pb2.RagStep:
    return chat_pb2.RagStep(
        kind=enum_number(step.kind, chat_pb2.RagStepKind.DESCRIPTOR),
        icon=step.icon,
        label=step.label,
        detail=step.detail,
        elapsed_ms=step.elapsed_ms,
        stage_elapsed_ms=step.stage_elapsed_ms,
        group=step.group,
        group_label=step.group_label,
    )


def run_finished(finished: TurnFinished) -> chat_pb2.RunFinished:
    return chat_pb2.RunFinished(
        status=enum_number(finished.status, run_pb2.RunStatus.DESCRIPTOR),
        error=_run_error(finished.failure),
        ai_position=finished.ai_position,
        ai_message_id=finished.ai_message_id,
        session_revision=finished.session_revision,
        usage=_usage(finished.usage),
    )


def _run_error(failure: TurnFailure | None) -> run_pb2.RunError | None:
    if failure is None:
        return None
    return run_pb2.RunError(code=failure.code, reason=failure.reason, message=failure.message)


def _usage(usage: Usage) -> run_pb2.Usage:
    return run_pb2.Usage(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, model_calls=usage.model_calls
    )


def _now() -> Timestamp:
    now = Timestamp()
    now.FromDatetime(datetime.now(UTC))
    return now
