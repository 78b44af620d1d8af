"""SaveSession over a channel: the whole history anew, and what of the old one stays."""

import grpc
import pytest
from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from askback.rag.v1 import trace_pb2
from askback.storage.v1.session_pb2 import MESSAGE_STATUS_COMPLETE, MESSAGE_STATUS_STOPPED, Message
from askback.storage.v1.session_service_pb2 import GetSessionRequest, SaveSessionRequest, SaveSessionResponse
from tests.integration.storage.harness import Storage, ai, human, refused

TRACE = trace_pb2.RagTrace(query="q", retrieved_chunks=[trace_pb2.RetrievedChunk(filename="a.md", text="t")])


async def _save(storage: Storage, user: str, *messages: Message, **fields: object) -> SaveSessionResponse:
    request = SaveSessionRequest(user_id=user, session_id="s", messages=messages, **fields)  # type: ignore[arg-type]
    return await storage.sessions.SaveSession(request, timeout=20)


async def test_a_session_comes_into_being_with_its_history(storage: Storage, other_storage: Storage, user: str) -> None:
    saved = (await _save(storage, user, human("one"), ai("two", rag_trace=TRACE), metadata=_struct(k=1))).session
    assert (saved.message_count, saved.revision, saved.title) == (2, 1, "s")
    assert dict(saved.metadata) == {"k": 1}
    kept = await other_storage.messages(user)
    assert [(message.position, message.content) for message in kept] == [(1, "one"), (2, "two")]
    assert kept[1].rag_trace == TRACE


async def test_what_is_kept_under_its_id_keeps_its_time_status_trace_and_run(storage: Storage, user: str) -> None:
    appended = await storage.append(
        user,
        "s",
        human("one"),
        ai("two", rag_trace=TRACE, status=MESSAGE_STATUS_STOPPED, run_id="r", create_time=Timestamp(seconds=7)),
        human("three"),
    )
    before = list(appended.messages)
    await _save(
        storage,
        user,
        human("new"),
        ai("two, edited", message_id=before[1].message_id),
        human("one", message_id=before[0].message_id),
    )
    new, edited, one = await storage.messages(user)
    assert [new.position, edited.position, one.position] == [1, 2, 3]
    expected = Message()
    expected.CopyFrom(before[1])
    expected.content = "two, edited"
    assert edited == expected
    expected.CopyFrom(before[0])
    expected.position = 3
    assert one == expected


async def test_what_the_request_sets_replaces_what_was_kept(storage: Storage, user: str) -> None:
    [before] = (await storage.append(user, "s", ai("one", rag_trace=TRACE, status=MESSAGE_STATUS_STOPPED))).messages
    other, when = trace_pb2.RagTrace(query="other"), Timestamp(seconds=9)
    given = ai("one", message_id=before.message_id, rag_trace=other, status=MESSAGE_STATUS_COMPLETE, create_time=when)
    await _save(storage, user, given)
    [after] = await storage.messages(user)
    assert (after.rag_trace, after.status, after.create_time) == (other, MESSAGE_STATUS_COMPLETE, when)


async def test_an_empty_history_empties_the_session_and_leaves_it(storage: Storage, user: str) -> None:
    await storage.append(user)
    assert (await _save(storage, user)).session.message_count == 0
    assert await storage.messages(user) == []
    assert (await storage.append(user)).messages[0].position == 1


async def test_metadata_is_merged_and_null_removes(storage: Storage, user: str) -> None:
    await _save(storage, user, metadata=_struct(a=1, b=2, c={"deep": True}))
    saved = (await _save(storage, user, metadata=_struct(a=None, b="two"))).session
    assert dict(saved.metadata) == {"b": "two", "c": {"deep": True}}
    assert (await _save(storage, user, human("x"))).session.metadata == saved.metadata


async def test_metadata_past_its_limits_once_merged_is_refused_and_nothing_stored(storage: Storage, user: str) -> None:
    await _save(storage, user, human("kept"), metadata=_struct(a="x" * 20_000))
    refusal = await refused(_save(storage, user, metadata=_struct(b="x" * 20_000)))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["metadata"])
    assert [message.content for message in await storage.messages(user)] == ["kept"]


async def test_a_save_that_is_sent_again_takes_effect_once(storage: Storage, other_storage: Storage, user: str) -> None:
    await _save(storage, user, human("one"), request_id="r")
    await storage.append(user)
    again = (await _save(other_storage, user, human("one"), request_id="r")).session
    assert (again.message_count, again.revision) == (3, 2)
    refusal = await refused(_save(other_storage, user, human("two"), request_id="r"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED")
    assert len(await storage.messages(user)) == 3


async def test_a_save_at_another_revision_changes_nothing(storage: Storage, user: str) -> None:
    await storage.append(user)
    refusal = await refused(_save(storage, user, human("lost"), expected_revision=0))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    assert refusal.metadata == {"expected_revision": "0", "revision": "1"}
    assert (await _save(storage, user, human("kept"), expected_revision=1)).session.revision == 2


async def test_while_a_run_holds_the_session_it_is_not_replaced(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    refusal = await refused(_save(storage, user))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "RUN_IN_PROGRESS")
    assert refusal.metadata == {"active_run_id": begun.run.run_id}


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_question_goes_with_its_message(storage: Storage, user: str, keeps: bool) -> None:
    asked = await storage.ask_back(user)
    before = await storage.messages(user)
    await _save(storage, user, *(before if keeps else before[:1]))
    session = (await storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s"))).session
    assert session.pending_hitl_task_id == (asked.opened_task.task_id if keeps else "")


async def test_a_large_history_is_taken_whole(storage: Storage, user: str) -> None:
    trace = trace_pb2.RagTrace(retrieved_chunks=[trace_pb2.RetrievedChunk(filename="a.md", text="x" * 6_000)])
    messages = [ai(str(n), rag_trace=trace) for n in range(1_000)]
    assert (await _save(storage, user, *messages, request_id="r")).session.message_count == 1_000
    assert (await _save(storage, user, *messages, request_id="r")).session.revision == 1


def _struct(**keys: object) -> Struct:
    struct = Struct()
    for key, value in keys.items():
        if value is None:
            struct.fields[key].CopyFrom(Value(null_value=NULL_VALUE))
        else:
            struct.update({key: value})  # type: ignore[dict-item]  # of whichever kind a Struct takes
    return struct
