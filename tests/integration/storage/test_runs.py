"""A turn, from the user's message to the reply, and who may write it."""

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict

from askback.rag.v1.trace_pb2 import RagTrace, RetrievedChunk
from askback.storage.v1.run_pb2 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_COMPLETED,
    RUN_STATUS_FAILED,
    RUN_STATUS_RUNNING,
    RunError,
    RunStatus,
    Usage,
)
from askback.storage.v1.run_service_pb2 import GetRunRequest, RenewRunRequest
from askback.storage.v1.session_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_FAILED,
    MESSAGE_STATUS_STOPPED,
    MESSAGE_TYPE_AI,
    MESSAGE_TYPE_HUMAN,
    Message,
    MessageStatus,
)
from askback.storage.v1.session_service_pb2 import GetMessageRequest, GetSessionRequest, ListMessagesRequest
from tests.integration.storage.harness import EndLease, Storage, finish_request, refused


async def test_a_begun_run_holds_its_session_and_has_stored_the_message(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user, "s", "where is it?", title_if_new="Where is it")
    assert begun.is_holder and not begun.already_begun and begun.fencing_token > 0
    assert (begun.run.status, begun.run.human_position) == (RUN_STATUS_RUNNING, 1)
    assert (begun.session.title, begun.session.message_count, begun.session.revision) == ("Where is it", 1, 1)
    assert begun.session.active_run_id == begun.run.run_id
    assert not begun.context
    page = await other_storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    assert [(m.position, m.type, m.status, m.content, m.run_id) for m in page.messages] == [
        (1, MESSAGE_TYPE_HUMAN, MESSAGE_STATUS_COMPLETE, "where is it?", begun.run.run_id)
    ]
    assert page.messages[0].message_id == begun.run.human_message_id


async def test_a_run_without_a_session_id_gets_a_new_session(storage: Storage, user: str) -> None:
    first, second = await storage.begin(user, ""), await storage.begin(user, "")
    assert first.session.session_id and second.session.session_id
    assert first.session.session_id != second.session.session_id
    assert first.run.session_id == first.session.session_id


async def test_a_finished_run_has_its_reply_with_its_trace_and_frees_the_session(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    trace = RagTrace(query="a question", retrieved_chunks=[RetrievedChunk(filename="a.md", text="evidence", score=0.0)])
    reply = Message(content="an answer [1]", rag_trace=trace, extra_json='{ "k": 1.0 }', message_id="my-id")
    usage = Usage(input_tokens=10, output_tokens=20, model_calls=2)
    finished = await storage.finish(begun, reply=reply, usage=usage)
    assert finished.run.status == RUN_STATUS_COMPLETED
    assert (finished.run.ai_position, finished.run.ai_message_id, finished.run.usage) == (2, "my-id", usage)
    assert finished.run.session_revision == finished.session.revision == 2
    assert (finished.session.active_run_id, finished.session.message_count) == ("", 2)
    stored = await other_storage.sessions.GetMessage(
        GetMessageRequest(user_id=user, session_id="s", message_id="my-id")
    )
    assert stored.message == finished.reply
    assert (stored.message.type, stored.message.status) == (MESSAGE_TYPE_AI, MESSAGE_STATUS_COMPLETE)
    assert (stored.message.rag_trace, stored.message.extra_json) == (trace, '{ "k": 1.0 }')
    assert (stored.message.content, stored.message.run_id) == ("an answer [1]", begun.run.run_id)
    assert (await other_storage.runs.GetRun(GetRunRequest(user_id=user, run_id=begun.run.run_id))).run == finished.run


@pytest.mark.parametrize(
    ("run_status", "message_status"),
    [(RUN_STATUS_CANCELLED, MESSAGE_STATUS_STOPPED), (RUN_STATUS_FAILED, MESSAGE_STATUS_FAILED)],
)
async def test_what_was_said_before_a_run_was_cut_short_is_kept_and_in_the_next_context(
    storage: Storage, user: str, run_status: RunStatus.ValueType, message_status: MessageStatus.ValueType
) -> None:
    begun = await storage.begin(user, message="a question")
    finished = await storage.finish(begun, "half an ans", status=run_status)
    assert finished.reply.status == message_status
    following = await storage.begin(user, message="and then?", max_context_messages=10)
    assert [(message.content, message.status) for message in following.context] == [
        ("a question", MESSAGE_STATUS_COMPLETE),
        ("half an ans", message_status),
    ]


async def test_a_run_that_failed_before_it_said_anything_keeps_the_question_and_the_reason(
    storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    error = RunError(code=14, reason="MODEL_UNAVAILABLE", message="no answer within 30 s")
    finished = await storage.finish(begun, status=RUN_STATUS_FAILED, reply=None, error=error)
    assert not finished.HasField("reply")
    assert finished.run.error == error
    assert (finished.session.message_count, finished.run.ai_position) == (1, 0)


async def test_no_turn_is_lost_to_its_error_text(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    error = RunError(code=13, reason="INTERNAL", message="\0" + "知" * 100_000)
    finished = await storage.finish(begun, "so far", status=RUN_STATUS_FAILED, error=error)
    assert finished.run.error.message == "知" * 1_024
    assert finished.reply.content == "so far"


async def test_a_trace_over_its_limit_is_cut_and_the_turn_is_kept(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    chunks = [RetrievedChunk(filename=f"{n}.md", text="知识" * 20_000) for n in range(20)]
    finished = await storage.finish(begun, reply=Message(content="x", rag_trace=RagTrace(retrieved_chunks=chunks)))
    assert finished.reply.rag_trace.ByteSize() <= 512 * 1_024
    assert [chunk.filename for chunk in finished.reply.rag_trace.retrieved_chunks] == [c.filename for c in chunks]


async def test_a_second_run_of_a_session_is_refused_and_told_which_is_in_the_way(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    refusal = await refused(other_storage.begin(user, message="me too"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "RUN_IN_PROGRESS")
    assert refusal.metadata == {"active_run_id": begun.run.run_id}
    assert refusal.retry_after_s is not None and refusal.retry_after_s > 0
    session = (await storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s"))).session
    assert session.message_count == 1


async def test_of_many_runs_at_once_over_two_replicas_one_holds_the_session(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    calls = [replica.begin(user, message=str(n)) for n in range(8) for replica in (storage, other_storage)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    page = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    assert [message.position for message in page.messages] == [1]


async def test_turns_follow_each_other_without_gaps(storage: Storage, other_storage: Storage, user: str) -> None:
    for n in range(6):
        await (storage, other_storage)[n % 2].turn(user, message=f"q{n}", answer=f"a{n}")
    page = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    assert [(message.position, message.content) for message in page.messages] == [
        (n + 1, f"{'qa'[n % 2]}{n // 2}") for n in range(12)
    ]
    assert page.revision == 12


async def test_the_context_is_the_newest_messages_before_the_turn_oldest_first_and_without_traces(
    storage: Storage, user: str
) -> None:
    for n in range(3):
        begun = await storage.begin(user, message=f"q{n}")
        await storage.finish(begun, reply=Message(content=f"a{n}", rag_trace=RagTrace(query="q")))
    begun = await storage.begin(user, message="now", max_context_messages=3)
    assert [message.content for message in begun.context] == ["a1", "q2", "a2"]
    assert not any(message.HasField("rag_trace") for message in begun.context)
    assert not begun.context_truncated


async def test_a_context_that_does_not_fit_its_bytes_says_so(storage: Storage, user: str) -> None:
    for _ in range(3):
        await storage.turn(user, answer="x" * 1_000_000)
    begun = await storage.begin(user, max_context_messages=6)
    assert begun.context_truncated
    assert len(begun.context) < 6
    assert [message.position for message in begun.context] == list(range(7 - len(begun.context), 7))


async def test_a_lease_is_as_long_as_asked_for_and_otherwise_the_services_own(storage: Storage, user: str) -> None:
    for session_id, lease, seconds in (("a", Duration(seconds=600), 600), ("b", None, 30)):
        begun = await storage.begin(user, session_id, lease=lease)
        held = begun.run.lease_expire_time.ToDatetime(UTC) - begun.run.create_time.ToDatetime(UTC)
        assert held == timedelta(seconds=seconds)


async def test_renewing_moves_the_lease_on(storage: Storage, other_storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    request = RenewRunRequest(user_id=user, run_id=begun.run.run_id, fencing_token=begun.fencing_token)
    renewed = (await other_storage.runs.RenewRun(request)).run
    assert renewed.status == RUN_STATUS_RUNNING and not renewed.cancel_requested
    assert renewed.lease_expire_time.ToDatetime(UTC) > begun.run.lease_expire_time.ToDatetime(UTC)


@pytest.mark.parametrize("off_by", [-1, 1, 2**40])
async def test_a_token_that_is_not_the_runs_writes_nothing(storage: Storage, user: str, off_by: int) -> None:
    begun = await storage.begin(user)
    stale = begun.fencing_token + off_by
    renewal = RenewRunRequest(user_id=user, run_id=begun.run.run_id, fencing_token=stale)
    for call in (storage.runs.RenewRun(renewal), storage.finish(begun, fencing_token=stale)):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "LEASE_LOST")
        assert refusal.metadata == {"run_id": begun.run.run_id}
    run = (await storage.runs.GetRun(GetRunRequest(user_id=user, run_id=begun.run.run_id))).run
    assert run == begun.run
    assert (await storage.finish(begun)).session.message_count == 2


async def test_tokens_of_a_session_grow(storage: Storage, user: str) -> None:
    tokens = []
    for _ in range(3):
        begun = await storage.begin(user)
        tokens.append(begun.fencing_token)
        await storage.finish(begun)
    assert tokens == sorted(set(tokens))


async def test_a_finished_run_cannot_be_renewed(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    await storage.finish(begun)
    request = RenewRunRequest(user_id=user, run_id=begun.run.run_id, fencing_token=begun.fencing_token)
    assert (await refused(storage.runs.RenewRun(request))).reason == "LEASE_LOST"


async def test_a_message_id_that_the_session_has_already_is_refused(storage: Storage, user: str) -> None:
    await storage.finish(await storage.begin(user), reply=Message(content="x", message_id="taken"))
    begun = await storage.begin(user)
    refusal = await refused(storage.finish(begun, reply=Message(content="y", message_id="taken")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "MESSAGE_ID_EXISTS")
    assert refusal.metadata == {"message_id": "taken"}
    assert (await storage.finish(begun, reply=Message(content="y", message_id="free"))).reply.position == 4


async def test_metadata_is_merged_key_by_key_and_null_removes(storage: Storage, user: str) -> None:
    first = await storage.finish(await storage.begin(user), metadata={"a": 1, "b": {"x": 1}, "c": "gone soon"})
    assert MessageToDict(first.session.metadata) == {"a": 1, "b": {"x": 1}, "c": "gone soon"}
    second = await storage.finish(await storage.begin(user), metadata={"b": {"y": 2}, "c": None, "d": [1, None]})
    assert MessageToDict(second.session.metadata) == {"a": 1, "b": {"y": 2}, "d": [1, None]}


async def test_metadata_that_grows_past_its_limit_by_merging_is_refused(storage: Storage, user: str) -> None:
    await storage.finish(await storage.begin(user), metadata={"a": "x" * 20_000})
    begun = await storage.begin(user)
    refusal = await refused(storage.finish(begun, metadata={"b": "x" * 20_000}))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["metadata"])
    assert (await storage.finish(begun)).session.message_count == 4


async def test_a_run_that_met_the_end_of_its_lease_is_replaced_and_refused_from_then_on(
    storage: Storage, other_storage: Storage, user: str, end_lease: EndLease
) -> None:
    old = await storage.begin(user, lease=Duration(seconds=5))
    await end_lease(old)
    new = await other_storage.begin(user, message="next")
    assert new.fencing_token > old.fencing_token
    ended = (await storage.runs.GetRun(GetRunRequest(user_id=user, run_id=old.run.run_id))).run
    assert (ended.status, ended.error.reason) == (RUN_STATUS_FAILED, "HOLDER_LOST")
    assert (await refused(storage.finish(old))).reason == "LEASE_LOST"
    finished = await other_storage.finish(new)
    assert [finished.run.human_position, finished.run.ai_position] == [2, 3]


async def test_a_run_whose_lease_ran_out_can_finish_as_long_as_nobody_ended_it(
    storage: Storage, user: str, end_lease: EndLease
) -> None:
    begun = await storage.begin(user, lease=Duration(seconds=5))
    await end_lease(begun)
    assert (await storage.finish(begun)).run.status == RUN_STATUS_COMPLETED


async def test_the_finish_is_later_than_the_beginning(storage: Storage, user: str) -> None:
    run = (await storage.turn(user)).run
    assert run.create_time.ToDatetime(UTC) < run.finish_time.ToDatetime(UTC)
    assert abs(datetime.now(UTC) - run.finish_time.ToDatetime(UTC)) < timedelta(minutes=5)


async def test_a_retried_finish_gets_the_first_answer_and_has_one_effect(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    request = finish_request(begun, metadata={"a": 1, "b": 2})
    first = await storage.runs.FinishRun(request)
    again = await asyncio.gather(*(replica.runs.FinishRun(request) for replica in (storage, other_storage) * 4))
    assert all(answer == first for answer in again)
    assert first.session.message_count == 2


async def test_finishes_at_once_with_the_same_body_have_one_effect(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    request = finish_request(begun)
    answers = await asyncio.gather(*(replica.runs.FinishRun(request) for replica in (storage, other_storage) * 4))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].session.message_count == 2


async def test_a_finish_repeated_after_the_session_went_on_shows_the_session_as_it_is_by_now(
    storage: Storage, user: str
) -> None:
    request = finish_request(await storage.begin(user))
    first = await storage.runs.FinishRun(request)
    await storage.turn(user)
    again = await storage.runs.FinishRun(request)
    assert (again.run, again.reply) == (first.run, first.reply)
    assert again.session.message_count == 4


async def test_another_finish_of_a_finished_run_is_refused(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    await storage.finish(begun, "an answer")
    assert (await refused(storage.finish(begun, "another answer"))).reason == "LEASE_LOST"
    page = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    assert [message.content for message in page.messages] == ["a question", "an answer"]
