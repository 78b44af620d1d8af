"""What is kept is told whole; and a record that cannot be read costs that record, and nothing around it."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as WireMessage
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from askback.rag.v1 import trace_pb2
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
from services.storage.rpc import replies

UNREADABLE = b"\xff\xff\xff\xff"
TIMES = [datetime(2026, 1, day, 3, 4, 5, 678_901, tzinfo=UTC) for day in range(1, 6)]

SESSION = Session(
    user_id="u",
    session_id="s",
    uid="uid",
    title="title",
    revision=1,
    message_count=2,
    create_time=TIMES[0],
    update_time=TIMES[1],
    note="note",
    note_through_position=3,
    metadata={"text": "x", "none": None, "list": [1, 0.5, True, {"deep": {}}]},
    expire_time=TIMES[2],
    active_run_id="run",
    pending_hitl_task_id="task",
)
RUN = Run(
    run_id="r",
    user_id="u",
    session_id="s",
    request_id="request",
    status=RunStatus.FAILED,
    human_position=1,
    human_message_id="human",
    lease_expire_time=TIMES[0],
    create_time=TIMES[1],
    answered_task_id="task",
    ai_position=2,
    ai_message_id="ai",
    cancel_requested=True,
    error=RunError(code=14, reason="MODEL_UNAVAILABLE", message="text"),
    usage=Usage(input_tokens=1, output_tokens=2, model_calls=3),
    finish_time=TIMES[2],
    session_revision=4,
)
MESSAGE = Message(
    position=2,
    message_id="m",
    type=MessageType.AI,
    status=MessageStatus.STOPPED,
    content="an answer",
    create_time=TIMES[0],
    run_id="r",
    trace=trace_pb2.RagTrace(query="q").SerializeToString(),
    extra_json="{}",
)
TASK = HitlTask(
    task_id="t",
    user_id="u",
    session_id="s",
    run_id="r",
    original_question="a question",
    prompt="which one?",
    options=("one", "two"),
    kind=HitlKind.SCOPE_SELECT,
    answers=("before",),
    resume_state=trace_pb2.HitlResumeState(
        retrieval_status=trace_pb2.RETRIEVAL_STATUS_NEEDS_SCOPE_SELECTION
    ).SerializeToString(),
    state=HitlState.ANSWERED,
    create_time=TIMES[0],
    expire_time=TIMES[1],
    resolve_time=TIMES[2],
    answer="one",
    answered_by_run_id="r2",
)


def _plain(value: Any) -> Any:
    if isinstance(value, Timestamp):
        return value.ToDatetime(UTC)
    if isinstance(value, Struct):
        return MessageToDict(value)
    if isinstance(value, trace_pb2.RagTrace | trace_pb2.HitlResumeState):
        return value.SerializeToString()
    if isinstance(value, WireMessage):
        return {field.name: part for field, part in value.ListFields()}
    return tuple(value) if hasattr(value, "append") else value


@pytest.mark.parametrize(
    ("kept", "wire", "not_kept"),
    [
        (SESSION, replies.session(SESSION), {}),
        (RUN, replies.run(RUN), {"last_event_sequence": 0}),
        (MESSAGE, replies.message(MESSAGE), {}),
        (TASK, replies.hitl_task(TASK), {"retrieval_status": trace_pb2.RETRIEVAL_STATUS_NEEDS_SCOPE_SELECTION}),
    ],
    ids=["session", "run", "message", "question"],
)
def test_every_field_is_told(kept: Any, wire: WireMessage, not_kept: dict[str, Any]) -> None:
    told = {field.name: _plain(getattr(wire, field.name)) for field in wire.DESCRIPTOR.fields}
    expected = {"rag_trace" if name == "trace" else name: value for name, value in asdict(kept).items()}
    assert told == expected | not_kept


def test_a_message_outlives_its_unreadable_trace() -> None:
    wire = replies.message(replace(MESSAGE, trace=UNREADABLE))
    assert (wire.content, wire.position, wire.HasField("rag_trace")) == ("an answer", 2, False)


def test_a_question_outlives_its_unreadable_resume_state() -> None:
    wire = replies.hitl_task(replace(TASK, resume_state=UNREADABLE))
    assert (wire.prompt, list(wire.options), wire.HasField("resume_state")) == ("which one?", ["one", "two"], False)
