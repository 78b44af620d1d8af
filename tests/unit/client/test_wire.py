from datetime import UTC, datetime
from typing import Any

import pytest

from askback.agent.v1.agent_service_pb2 import ChatRequest
from askback.client.wire import build
from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2, session_pb2
from askback.storage.v1.run_service_pb2 import BeginRunRequest, FinishRunRequest
from askback.storage.v1.session_service_pb2 import AppendMessagesRequest, SaveSessionRequest, UpdateSessionRequest


def test_plain_values_become_a_message_of_messages() -> None:
    made = build(
        FinishRunRequest,
        status="AWAITING_INPUT",
        reply={"type": "ai", "content": "Which?", "rag_trace": {"retrieval": {"candidate_k": 24}}},
        metadata={"lang": "de", "old": None},
        opened_task={"kind": "HITL_KIND_SCOPE_SELECT", "options": ["A", "B"], "expire_after": 90.5},
        usage={"output_tokens": 3},
    )
    assert made.status == run_pb2.RUN_STATUS_AWAITING_INPUT
    assert made.reply.type == session_pb2.MESSAGE_TYPE_AI
    assert made.reply.rag_trace.retrieval.candidate_k == 24
    assert dict(made.metadata) == {"lang": "de", "old": None}
    assert made.opened_task.kind == hitl_pb2.HITL_KIND_SCOPE_SELECT
    assert made.opened_task.expire_after.ToMilliseconds() == 90_500
    assert made.usage.output_tokens == 3


def test_messages_pass_as_they_are_beside_mappings() -> None:
    message = session_pb2.Message(content="one")
    made = build(AppendMessagesRequest, messages=[message, {"content": "two"}])
    assert [message.content for message in made.messages] == ["one", "two"]


def test_none_leaves_a_field_unset_and_zero_does_not() -> None:
    assert not build(SaveSessionRequest, expected_revision=None).HasField("expected_revision")
    assert build(SaveSessionRequest, expected_revision=0).HasField("expected_revision")


def test_an_enum_may_be_a_number_that_this_version_does_not_know() -> None:
    assert build(ChatRequest, conflict_policy=99).conflict_policy == 99


def test_an_enum_with_a_lone_letter_in_its_name_has_its_prefix_too() -> None:
    made = build(trace_pb2.RetrievalStats, candidate_k_source="MULTIPLIER")
    assert made.candidate_k_source == trace_pb2.CANDIDATE_K_SOURCE_MULTIPLIER


def test_a_datetime_keeps_its_moment() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = build(UpdateSessionRequest, session={"expire_time": moment}, update_mask=["expire_time"])
    assert made.session.expire_time.ToDatetime(UTC) == moment
    assert list(made.update_mask.paths) == ["expire_time"]


@pytest.mark.parametrize(
    ("kind", "values", "complaint"),
    [
        (ChatRequest, {"conflict_policy": "WAIT"}, "conflict_policy: must be one of UNSPECIFIED, REJECT, ENQUEUE"),
        (ChatRequest, {"mesage": "hi"}, "mesage: no field of ChatRequest"),
        (ChatRequest, {"message": 3}, "message: "),
        (ChatRequest, {"message": "\udcff"}, "message: .* surrogates not allowed"),
        (BeginRunRequest, {"max_context_messages": 2**40}, "max_context_messages: Value out of range"),
        (AppendMessagesRequest, {"messages": [{"content": "a"}, {"text": "b"}]}, r"messages\[1\]\.text: no field"),
        (AppendMessagesRequest, {"messages": "hi"}, "messages: must be a list, not str"),
        (AppendMessagesRequest, {"messages": ["hi"]}, r"messages\[0\]: must be a Message or a mapping, not str"),
        (
            UpdateSessionRequest,
            {"session": {"expire_time": datetime(2030, 1, 1)}},  # noqa: DTZ001
            "session.expire_time: must be a datetime with its time zone",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_fields_name(kind: Any, values: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        build(kind, **values)
