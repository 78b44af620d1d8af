"""A finish as the store takes it, beside what the tests over a channel see of it."""

from datetime import timedelta

import pytest

from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2, run_service_pb2, session_pb2
from services.runtime.errors import InvalidField
from services.storage.rpc import convert

WEEK = timedelta(days=7)


def _finish(**fields: object) -> run_service_pb2.FinishRunRequest:
    given = {"user_id": "u", "run_id": "r", "fencing_token": 1, "status": run_pb2.RUN_STATUS_COMPLETED}
    return run_service_pb2.FinishRunRequest(**given | fields)  # type: ignore[arg-type]


def test_the_same_finish_has_the_same_hash_however_its_bytes_were_written() -> None:
    metadata = {str(n): n for n in range(50)}
    one = _finish(metadata=metadata)
    other = _finish(metadata=dict(reversed(metadata.items())))
    merged = run_service_pb2.FinishRunRequest.FromString(other.SerializeToString() + one.SerializeToString())
    hashes = {convert.finish_run(request, expire_after=WEEK).request_hash for request in (one, other, merged)}
    assert len(hashes) == 1


def test_any_other_finish_has_another_hash() -> None:
    requests = [
        _finish(),
        _finish(fencing_token=2),
        _finish(status=run_pb2.RUN_STATUS_FAILED),
        _finish(reply=session_pb2.Message(content="a")),
        _finish(reply=session_pb2.Message(content="b")),
        _finish(metadata={"k": 1}),
        _finish(usage=run_pb2.Usage(model_calls=1)),
    ]
    assert len({convert.finish_run(request, expire_after=WEEK).request_hash for request in requests}) == len(requests)


def test_a_trace_is_cleaned_before_it_is_stored() -> None:
    trace = trace_pb2.RagTrace(retrieved_chunks=[trace_pb2.RetrievedChunk(text="from nowhere")], query="a\0b")
    finished = convert.finish_run(_finish(reply=session_pb2.Message(rag_trace=trace)), expire_after=WEEK)
    assert finished.reply is not None and finished.reply.trace is not None
    assert trace_pb2.RagTrace.FromString(finished.reply.trace) == trace_pb2.RagTrace(query="ab")


def test_a_flood_of_texts_is_told_by_its_number() -> None:
    draft = hitl_pb2.HitlTaskDraft(
        original_question="q", prompt="p", kind=hitl_pb2.HITL_KIND_CLARIFY, options=["\0"] * 500_000
    )
    draft.options[:20] = ["fine"] * 20
    request = _finish(status=run_pb2.RUN_STATUS_AWAITING_INPUT, opened_task=draft)
    with pytest.raises(InvalidField) as caught:
        convert.finish_run(request, expire_after=WEEK)
    assert [violation.field for violation in caught.value.violations] == ["opened_task.options"]
