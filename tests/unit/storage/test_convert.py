"""Requests as the store takes them, beside what the tests over a channel see of it."""

import asyncio
from datetime import timedelta

import pytest

from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2, run_service_pb2, session_pb2, session_service_pb2
from services.runtime.errors import InvalidField
from services.storage.models import ConflictPolicy
from services.storage.rpc import convert

WEEK = timedelta(days=7)
HUMAN, AI = session_pb2.MESSAGE_TYPE_HUMAN, session_pb2.MESSAGE_TYPE_AI


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


def _append(**fields: object) -> session_service_pb2.AppendMessagesRequest:
    given = {"user_id": "u", "session_id": "s", "messages": [session_pb2.Message(type=HUMAN, content="a")]}
    return session_service_pb2.AppendMessagesRequest(**given | fields)  # type: ignore[arg-type]


async def test_a_requests_hash_leaves_its_id_out_and_the_request_as_it_was() -> None:
    one, other = _append(request_id="one"), _append(request_id="other")
    hashes = [(await convert.append_messages(request)).request_hash for request in (one, other)]
    assert hashes[0] == hashes[1]
    assert one == _append(request_id="one")


async def test_any_other_append_has_another_hash() -> None:
    trace = trace_pb2.RagTrace(query="q")
    requests = [
        _append(request_id="r"),
        _append(request_id="r", expected_revision=0),
        _append(request_id="r", session_id="t"),
        _append(request_id="r", messages=[session_pb2.Message(type=AI, content="a")]),
        _append(request_id="r", messages=[session_pb2.Message(type=HUMAN, content="a", rag_trace=trace)]),
        _append(request_id="r", messages=[session_pb2.Message(type=HUMAN, content="a")] * 2),
    ]
    hashes = {(await convert.append_messages(request)).request_hash for request in requests}
    assert len(hashes) == len(requests)


async def test_a_large_request_has_the_hash_of_all_its_bytes() -> None:
    contents = ["x" * 1_000_000] * 3
    hashes = set()
    for last in ("a", "b"):
        messages = [session_pb2.Message(type=HUMAN, content=content) for content in (*contents, last)]
        request = session_service_pb2.SaveSessionRequest(user_id="u", session_id="s", messages=messages, request_id="r")
        hashes.add((await convert.save_session(request)).request_hash)
    assert len(hashes) == 2


async def test_others_get_their_turns_while_a_large_history_is_read() -> None:
    trace = trace_pb2.RagTrace(retrieved_chunks=[trace_pb2.RetrievedChunk(filename="a.md", text="x" * 600)] * 10)
    messages = [session_pb2.Message(type=AI, content="x", rag_trace=trace)] * 2_000
    request = session_service_pb2.SaveSessionRequest(user_id="u", session_id="s", messages=messages, request_id="r")
    reading = asyncio.ensure_future(convert.save_session(request))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await reading).messages) == 2_000
    assert turns > 10


@pytest.mark.parametrize(
    ("remaining_s", "patience_s"), [(None, 10), (60, 10), (10.5, 10), (3, 2.5), (0.5, 0), (0.1, 0), (0, 0)]
)
def test_a_queued_message_waits_for_as_long_as_its_caller_will_hear_of_it(
    remaining_s: float | None, patience_s: float
) -> None:
    request = run_service_pb2.BeginRunRequest(user_id="u", message="m")
    begun = convert.begin_run(request, lease=timedelta(seconds=30), time_remaining_s=remaining_s)
    assert begun.patience == timedelta(seconds=patience_s)
    assert begun.conflict_policy is ConflictPolicy.REJECT
