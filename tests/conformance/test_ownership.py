"""What is another user's cannot be told from what does not exist."""

from collections.abc import Awaitable, Callable

import pytest

from services.storage.errors import HitlTaskNotFound, RevisionMismatch, RunNotFound, SessionNotFound
from services.storage.models import HitlTask, RunStatus
from services.storage.store.base import ConversationStorage
from services.storage.store.commands import UpdateSession
from services.storage.store.results import BegunRun
from tests.conformance.conversation import MIB, Conversation, new_name, said


@pytest.fixture
def stranger(conversation: Conversation) -> Conversation:
    """Another user, who has learned the session's id."""
    return Conversation(conversation.store, session_id=conversation.session_id)


_READINGS: dict[str, Callable[[ConversationStorage, str, str], Awaitable[object]]] = {
    "get_session": lambda store, user, session: store.get_session(user, session),
    "load_session": lambda store, user, session: store.load_session(
        user, session, max_messages=0, include_traces=True, max_bytes=MIB
    ),
    "list_messages": lambda store, user, session: store.list_messages(
        user, session, page_size=10, after=None, descending=False, include_traces=True, max_bytes=MIB
    ),
    "get_message": lambda store, user, session: store.get_message(user, session, "m-1"),
    "delete_session": lambda store, user, session: store.delete_session(user, session),
    "update_session": lambda store, user, session: store.update_session(
        UpdateSession(user_id=user, session_id=session, title="not mine", metadata={"a": 1}, note="not mine")
    ),
    "delete_messages": lambda store, user, session: store.delete_messages(user, session, after_position=0),
}


@pytest.mark.parametrize("reading", list(_READINGS))
async def test_a_session_is_its_users_alone(conversation: Conversation, stranger: Conversation, reading: str) -> None:
    """Read or deleted by another, it is not found, and stays."""
    await conversation.turn(reply=said("secret", message_id="m-1"))
    with pytest.raises(SessionNotFound):
        await _READINGS[reading](conversation.store, stranger.user_id, conversation.session_id)
    assert "secret" in await conversation.contents()


async def test_lists_hold_a_users_own_alone(conversation: Conversation, stranger: Conversation) -> None:
    """Sessions and questions, also where the session's id is known."""
    await conversation.ask_back()
    store = conversation.store
    assert not (await store.list_session_ids(stranger.user_id, page_size=10, after=None)).session_ids
    listed = await store.list_hitl_tasks(
        stranger.user_id, session_id=conversation.session_id, page_size=10, after=None, max_bytes=MIB
    )
    assert not listed.tasks


async def test_the_same_session_id_of_two_users_is_two_sessions(
    conversation: Conversation, stranger: Conversation
) -> None:
    """Neither sees the other's messages."""
    await conversation.turn("mine")
    await stranger.turn("theirs")
    assert (await conversation.contents())[0] == "mine"
    assert (await stranger.contents())[0] == "theirs"


async def test_writing_into_a_session_id_of_another_makes_ones_own(
    conversation: Conversation, stranger: Conversation
) -> None:
    """Also where the other's revision is known: it is none of the writer's session, which there is not."""
    await conversation.append("mine")
    for write in (stranger.append, stranger.save):
        with pytest.raises(RevisionMismatch) as refusal:
            await write("theirs", expected_revision=1)
        assert refusal.value.metadata["revision"] == "0"
    await stranger.append(said("theirs", message_id="m-1"))
    await stranger.save("theirs, saved")
    assert await conversation.contents() == ["mine"]
    assert await stranger.contents() == ["theirs, saved"]


async def test_deleting_a_users_data_deletes_no_one_elses(conversation: Conversation, stranger: Conversation) -> None:
    """Whatever the ids are that they share."""
    await conversation.append("mine")
    assert await stranger.store.delete_user_data(stranger.user_id) == 0
    assert await conversation.contents() == ["mine"]


async def test_a_run_is_its_users_alone(conversation: Conversation, stranger: Conversation) -> None:
    """With the right token even, another can neither read, renew nor finish it."""
    begun = await conversation.begin()
    store = conversation.store
    with pytest.raises(RunNotFound):
        await store.get_run(stranger.user_id, begun.run.run_id)
    with pytest.raises(RunNotFound):
        await store.renew_run(stranger.user_id, begun.run.run_id, fencing_token=begun.fencing_token)
    with pytest.raises(RunNotFound):
        await stranger.finish(begun, said("not mine"))
    assert (await store.get_run(conversation.user_id, begun.run.run_id)).status is RunStatus.RUNNING


async def test_a_question_is_its_users_alone(conversation: Conversation, stranger: Conversation) -> None:
    """Another can neither read nor answer it."""
    task: HitlTask = await conversation.ask_back()
    with pytest.raises(HitlTaskNotFound):
        await conversation.store.get_hitl_task(stranger.user_id, task.task_id)
    with pytest.raises(HitlTaskNotFound):
        await stranger.begin("Harbor", answers_task_id=task.task_id)
    assert await conversation.store.get_hitl_task(conversation.user_id, task.task_id) == task


async def test_ids_are_whole_and_apart(store: ConversationStorage) -> None:
    """Separators and wildcards in an id are nothing but characters; case and length tell."""
    names = [":", "a:b", "a", "b", "%", "_", "a%", "A", "x" * 128, "é", "e\u0301", " ", "'; DROP TABLE sessions; --"]
    prefix = new_name()
    conversations = [
        Conversation(store, user_id=prefix + user, session_id=session) for user in names for session in names
    ]
    begun: dict[tuple[str, str], BegunRun] = {}
    for each in conversations:
        begun[each.user_id, each.session_id] = await each.begin(f"{each.user_id}|{each.session_id}")
    for each in conversations:
        assert await each.contents() == [f"{each.user_id}|{each.session_id}"]
    assert len({run.session.uid for run in begun.values()}) == len(names) ** 2
