"""A record that cannot be read any more costs itself alone, never the session that it belongs to."""

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1.hitl_service_pb2 import GetHitlTaskRequest, ListHitlTasksRequest
from askback.storage.v1.run_pb2 import RUN_STATUS_COMPLETED, RUN_STATUS_FAILED
from askback.storage.v1.session_pb2 import MESSAGE_TYPE_AI, Message
from askback.storage.v1.session_service_pb2 import (
    GetMessageRequest,
    GetSessionRequest,
    ListMessagesRequest,
    ListSessionsRequest,
    LoadSessionRequest,
)
from tests.integration.storage.harness import Storage, unique

Damage = Callable[..., Awaitable[None]]

TRACE = trace_pb2.RagTrace(retrieved_chunks=[trace_pb2.RetrievedChunk(filename="a.md", text="evidence")])
# Each is refused by a parser in its own way: a length beyond the end, no field at all, a text that is no UTF-8.
UNREADABLE = [b"\x0a\xff\xff\xff\x7fx", b"\xff\xff\xff\xff", b"\x0a\x02\xff\xfe"]
every_kind = pytest.mark.parametrize("damaged", UNREADABLE, ids=["cut short", "no field", "no text"])


@pytest.fixture
def damage(storage_database_url: str) -> Damage:
    """Changes a user's rows behind the service's back."""

    async def change(statement: str, user: str, *values: object) -> None:
        connection = await asyncpg.connect(storage_database_url)
        try:
            await connection.execute(f"{statement} WHERE user_id = $1", user, *values)
        finally:
            await connection.close()

    return change


async def _ask_back(storage: Storage, user: str, session_id: str = "s") -> hitl_pb2.HitlTask:
    state = trace_pb2.HitlResumeState(question="a question", collection="manuals")
    return (await storage.ask_back(user, session_id, resume_state=state)).opened_task


@every_kind
async def test_a_question_whose_resume_state_is_unreadable_is_shown_without_it(
    storage: Storage, damage: Damage, user: str, damaged: bytes
) -> None:
    asked = await _ask_back(storage, user)
    await damage("UPDATE hitl_tasks SET resume_state = $2", user, damaged)
    whole = await _ask_back(storage, user, "another")

    expected = hitl_pb2.HitlTask()
    expected.CopyFrom(asked)
    expected.ClearField("resume_state")
    expected.ClearField("retrieval_status")
    got = await storage.hitl.GetHitlTask(GetHitlTaskRequest(user_id=user, task_id=asked.task_id))
    assert got.task == expected
    listed = await storage.hitl.ListHitlTasks(ListHitlTasksRequest(user_id=user))
    assert list(listed.tasks) == [expected, whole]


@every_kind
async def test_a_question_whose_resume_state_is_unreadable_is_claimed_and_answered_without_it(
    storage: Storage, damage: Damage, user: str, damaged: bytes
) -> None:
    asked = await _ask_back(storage, user)
    await damage("UPDATE hitl_tasks SET resume_state = $2", user, damaged)

    begun = await storage.begin(user, message="the first", max_context_messages=10)
    assert begun.claimed_task.task_id == asked.task_id
    assert begun.claimed_task.state == hitl_pb2.HITL_STATE_CLAIMED
    assert begun.claimed_task.original_question == asked.original_question
    assert not begun.claimed_task.HasField("resume_state")
    assert [message.content for message in begun.context] == ["a question", "which one?"]

    await storage.finish(begun, status=RUN_STATUS_COMPLETED)
    task = (await storage.hitl.GetHitlTask(GetHitlTaskRequest(user_id=user, task_id=asked.task_id))).task
    assert (task.state, task.answer) == (hitl_pb2.HITL_STATE_ANSWERED, "the first")


async def test_a_failed_turn_gives_an_unreadable_question_back(storage: Storage, damage: Damage, user: str) -> None:
    asked = await _ask_back(storage, user)
    await damage("UPDATE hitl_tasks SET resume_state = $2", user, UNREADABLE[0])
    finished = await storage.finish(await storage.begin(user), status=RUN_STATUS_FAILED)
    assert finished.session.pending_hitl_task_id == asked.task_id
    assert (await storage.begin(user)).claimed_task.task_id == asked.task_id


async def _turn_with_trace(storage: Storage, user: str) -> str:
    reply = Message(type=MESSAGE_TYPE_AI, content="an answer", rag_trace=TRACE)
    return (await storage.finish(await storage.begin(user), reply=reply)).reply.message_id


@every_kind
async def test_a_message_whose_trace_is_unreadable_is_read_without_it(
    storage: Storage, damage: Damage, user: str, damaged: bytes
) -> None:
    message_id = await _turn_with_trace(storage, user)
    await damage("UPDATE messages SET trace = $2", user, damaged)
    await _turn_with_trace(storage, user)

    listed = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    loaded = await storage.sessions.LoadSession(LoadSessionRequest(user_id=user, session_id="s", include_traces=True))
    for messages in (listed.messages, loaded.messages):
        assert [message.content for message in messages] == ["a question", "an answer"] * 2
        assert [message.HasField("rag_trace") for message in messages] == [False, False, False, True]
        assert messages[-1].rag_trace == TRACE
    got = await storage.sessions.GetMessage(GetMessageRequest(user_id=user, session_id="s", message_id=message_id))
    assert (got.message.content, got.message.HasField("rag_trace")) == ("an answer", False)


@pytest.mark.parametrize("column", ["kind", "state"])
async def test_a_question_of_a_kind_or_state_that_this_version_does_not_know_stands_in_no_ones_way(
    storage: Storage, damage: Damage, user: str, column: str
) -> None:
    await _ask_back(storage, user)
    await damage(f"UPDATE hitl_tasks SET {column} = $2", user, 99)
    whole = await _ask_back(storage, user, "another")
    listed = await storage.hitl.ListHitlTasks(ListHitlTasksRequest(user_id=user))
    assert whole in listed.tasks
    assert len(listed.tasks) == 2
    assert (await storage.turn(user)).session.message_count == 4


async def test_a_message_of_a_type_or_status_that_this_version_does_not_know_is_shown_with_the_others(
    storage: Storage, damage: Damage, user: str
) -> None:
    await storage.turn(user)
    await damage("UPDATE messages SET type = $2, status = $3", user, 98, 99)
    await storage.turn(user)
    listed = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    assert [message.content for message in listed.messages] == ["a question", "an answer"] * 2
    begun = await storage.begin(user, max_context_messages=10)
    assert len(begun.context) == 4


@pytest.mark.parametrize("metadata", ["[1, 2]", '"text"', "null"])
async def test_metadata_that_is_no_object_leaves_the_session_readable(
    storage: Storage, damage: Damage, user: str, metadata: str
) -> None:
    await storage.turn(user)
    await damage("UPDATE sessions SET metadata = CAST($2 AS text)::jsonb", user, metadata)
    await storage.turn(user, unique("whole"))
    got = await storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s"))
    assert got.session.message_count == 2
    listed = await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))
    assert len(listed.sessions) == 2
    assert (await storage.turn(user)).session.message_count == 4
