"""AppendMessages over a channel: what is stored, what is refused, and what a repeat finds."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from askback.rag.v1 import trace_pb2
from askback.storage.v1.session_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_STOPPED,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_TOOL,
    Message,
)
from askback.storage.v1.session_service_pb2 import AppendMessagesRequest, AppendMessagesResponse, DeleteSessionRequest
from tests.integration.storage.harness import Storage, ai, human, patiently, refused


async def test_messages_are_stored_at_the_end_as_they_were_given(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    trace = trace_pb2.RagTrace(query="q", retrieved_chunks=[trace_pb2.RetrievedChunk(filename="a.md", text="t")])
    when = Timestamp(seconds=1_000, nanos=5_000)
    await storage.append(user, "s", Message(type=MESSAGE_TYPE_SYSTEM, content="be brief"))
    appended = await storage.append(
        user,
        "s",
        human("a question", message_id="mine", create_time=when, extra_json='{"k":  1}'),
        ai("an ans", rag_trace=trace, status=MESSAGE_STATUS_STOPPED, run_id="elsewhere"),
        Message(type=MESSAGE_TYPE_TOOL),
    )
    assert [message.position for message in appended.messages] == [2, 3, 4]
    question, answer, tool = appended.messages
    assert (question.message_id, question.create_time, question.extra_json) == ("mine", when, '{"k":  1}')
    assert question.status == MESSAGE_STATUS_COMPLETE
    assert (answer.rag_trace, answer.status, answer.run_id) == (trace, MESSAGE_STATUS_STOPPED, "elsewhere")
    assert (tool.content, tool.status) == ("", MESSAGE_STATUS_COMPLETE)
    assert answer.message_id and answer.message_id != tool.message_id
    assert abs(answer.create_time.ToDatetime(UTC) - datetime.now(UTC)).total_seconds() < 60
    assert (appended.session.message_count, appended.session.revision) == (4, 2)
    assert (await other_storage.messages(user))[1:] == list(appended.messages)
    assert await other_storage.session(user) == appended.session


async def test_what_was_appended_comes_back_character_by_character(storage: Storage, user: str) -> None:
    words = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL} می‌خواهم क्‍ष \ufeff\x01\x7f\u2028 e\u0301 \U0010ffff"
    appended = await storage.append(user, "s", human(words), ai(words, extra_json='{"k": "' + "می‌" + '"}'))
    assert [message.content for message in appended.messages] == [words, words]
    assert await storage.messages(user) == list(appended.messages)


async def test_a_thousand_messages_at_once_get_a_thousand_positions(storage: Storage, user: str) -> None:
    appended = await storage.append(user, "s", *(human(str(n)) for n in range(1_000)))
    assert [(message.position, message.content) for message in appended.messages] == [
        (n + 1, str(n)) for n in range(1_000)
    ]


async def test_appends_at_once_on_two_replicas_leave_no_gap(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    replicas = (storage, other_storage)

    async def append(n: int) -> AppendMessagesResponse:
        return await patiently(lambda: replicas[n % 2].append(user, "s", human(str(n)), ai(str(n))))

    answers = await asyncio.gather(*map(append, range(100)))
    positions = sorted(message.position for answer in answers for message in answer.messages)
    assert positions == list(range(1, 201))
    contents = [message.content for message in await storage.messages(user)]
    assert contents[::2] == contents[1::2]
    assert sorted(contents[::2], key=int) == [str(n) for n in range(100)]


async def test_an_append_that_is_sent_again_gets_the_first_answer(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    first = await storage.append(user, request_id="r")
    await storage.append(user)
    again = await other_storage.append(user, request_id="r")
    assert again.messages == first.messages
    assert (again.session.message_count, again.session.revision) == (4, 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"messages": [human("other words")]},
        {"messages": [human("a question"), ai("an answer", rag_trace=trace_pb2.RagTrace(query="q"))]},
        {"session_id": "elsewhere"},
        {"expected_revision": 0},
    ],
    ids=str,
)
async def test_the_same_id_with_another_append_is_refused(
    storage: Storage, other_storage: Storage, user: str, changed: dict[str, Any]
) -> None:
    await storage.append(user, request_id="r")
    asked = {"user_id": user, "session_id": "s", "messages": [human("a question"), ai("an answer")], "request_id": "r"}
    refusal = await refused(other_storage.sessions.AppendMessages(AppendMessagesRequest(**asked | changed)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED")
    assert len(await storage.messages(user)) == 2


async def test_a_late_repeat_of_an_append_brings_no_deleted_session_back(storage: Storage, user: str) -> None:
    await storage.append(user, request_id="r")
    await storage.sessions.DeleteSession(DeleteSessionRequest(user_id=user, session_id="s"))
    refusal = await refused(storage.append(user, request_id="r"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "SESSION_DELETED")
    assert (await refused(storage.session(user))).reason == "SESSION_NOT_FOUND"


async def test_an_id_that_the_session_has_is_refused_and_nothing_of_it_stored(storage: Storage, user: str) -> None:
    await storage.append(user, "s", human("one", message_id="taken"))
    refusal = await refused(storage.append(user, "s", ai("two"), human("three", message_id="taken"), request_id="r"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "MESSAGE_ID_EXISTS")
    assert refusal.metadata == {"message_id": "taken"}
    assert [message.content for message in await storage.messages(user)] == ["one"]
    assert len((await storage.append(user, "s", ai("two"), request_id="r")).messages) == 1
    await storage.append(user, "another", human("one", message_id="taken"))


async def test_an_append_at_another_revision_is_refused(storage: Storage, user: str) -> None:
    absent = await refused(storage.append(user, expected_revision=3))
    assert (absent.code, absent.reason) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    assert absent.metadata == {"expected_revision": "3", "revision": "0"}
    first = await storage.append(user, expected_revision=0)
    assert (await refused(storage.append(user, expected_revision=0))).metadata == {
        "expected_revision": "0",
        "revision": "1",
    }
    second = await storage.append(user, expected_revision=first.session.revision)
    assert second.session.revision == 2


async def test_one_of_many_appends_at_one_revision_wins(storage: Storage, other_storage: Storage, user: str) -> None:
    await storage.append(user)
    answers = await asyncio.gather(
        *(replica.append(user, expected_revision=1) for replica in (storage, other_storage) * 5), return_exceptions=True
    )
    lost = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert (len(lost), {error.code() for error in lost}) == (9, {grpc.StatusCode.ABORTED})
    assert (await storage.session(user)).message_count == 4


async def test_while_a_run_holds_the_session_nothing_is_appended(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    refusal = await refused(storage.append(user))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "RUN_IN_PROGRESS")
    assert refusal.metadata == {"active_run_id": begun.run.run_id}
    assert refusal.retry_after_s
    await storage.finish(begun)
    assert [message.position for message in (await storage.append(user)).messages] == [3, 4]


async def test_a_request_whose_reply_would_not_fit_is_refused_whole(storage: Storage, user: str) -> None:
    refusal = await refused(storage.append(user, "s", *(human("x" * 1_048_000) for _ in range(16))))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
    assert int(refusal.metadata["actual"]) > int(refusal.metadata["limit"]) == 15 * 1_048_576
    appended = await storage.append(user, "s", *(human("x" * 1_048_000) for _ in range(15)))
    assert appended.session.message_count == 15
