"""All that is kept of a user goes."""

import asyncio

import pytest

from services.storage.errors import HitlTaskNotFound, RequestIdReused, RunNotFound, SessionDeleted, SessionNotFound
from services.storage.store.base import ConversationStorage
from tests.conformance.conversation import MIB, Conversation, new_name, said


async def _delete_all(conversation: Conversation, *, request_id: str = "", request_hash: bytes = b"") -> int:
    return await conversation.store.delete_user_data(
        conversation.user_id, request_id=request_id, request_hash=request_hash
    )


async def test_nothing_of_the_user_is_left(conversation: Conversation) -> None:
    """Sessions, messages, runs, questions; it tells how many sessions there were."""
    task = await conversation.ask_back()
    busy = conversation.another()
    begun = await busy.begin()
    await conversation.another().append("one")
    assert await _delete_all(conversation) == 3
    store, user_id = conversation.store, conversation.user_id
    assert not (await store.list_session_ids(user_id, page_size=10, after=None)).session_ids
    assert not (await store.list_hitl_tasks(user_id, page_size=10, after=None, max_bytes=MIB)).tasks
    with pytest.raises(HitlTaskNotFound):
        await store.get_hitl_task(user_id, task.task_id)
    with pytest.raises(RunNotFound):
        await busy.finish(begun, said("too late"))
    for each in (conversation, busy):
        with pytest.raises(SessionNotFound):
            await each.messages()


async def test_other_users_stay(conversation: Conversation) -> None:
    """Those with the same session ids, too."""
    other = Conversation(conversation.store, session_id=conversation.session_id)
    for each in (conversation, other):
        await each.append("one")
    await _delete_all(conversation)
    assert await other.contents() == ["one"]


async def test_a_user_nobody_knows_has_nothing(conversation: Conversation) -> None:
    """It is no error, and may be asked for again."""
    assert [await _delete_all(conversation), await _delete_all(conversation)] == [0, 0]


async def test_many_sessions_and_long_ones_go(store: ConversationStorage) -> None:
    """More than fit a batch, and one that is larger than one."""
    user_id = new_name()
    long = Conversation(store, user_id=user_id)
    for _ in range(3):
        await long.append(*map(str, range(1_000)))
    small = [Conversation(store, user_id=user_id) for _ in range(60)]
    for start in range(0, 60, 10):
        await asyncio.gather(*(each.append(*map(str, range(20))) for each in small[start : start + 10]))
    assert await store.delete_user_data(user_id) == 61
    assert not (await store.list_session_ids(user_id, page_size=100, after=None)).session_ids


async def test_a_user_can_begin_anew(conversation: Conversation) -> None:
    """With sessions that have nothing of the old; their list is at no number that it was at before."""
    store, user_id = conversation.store, conversation.user_id
    seen = set()
    for number in range(3):
        appended = await conversation.append(f"{number}")
        assert appended.session.revision == 1
        seen.add((await store.user_version(user_id)).revision)
        await _delete_all(conversation)
    assert len(seen) == 3
    assert not (await store.list_session_ids(user_id, page_size=10, after=None)).session_ids


async def test_a_late_repeat_of_an_older_request_brings_nothing_back(conversation: Conversation) -> None:
    """Nor into a session of the same id that has come since."""
    await conversation.append("old", request_id="r", request_hash=b"1")
    await _delete_all(conversation)
    for _ in range(2):
        with pytest.raises(SessionDeleted):
            await conversation.append("old", request_id="r", request_hash=b"1")
        with pytest.raises(SessionNotFound):
            await conversation.session()
    await conversation.append("new")
    with pytest.raises(SessionDeleted):
        await conversation.append("old", request_id="r", request_hash=b"1")
    assert await conversation.contents() == ["new"]


async def test_a_repeat_gets_the_first_answer(conversation: Conversation) -> None:
    """It deletes nothing that has come since."""
    await conversation.append("one")
    assert await _delete_all(conversation, request_id="d", request_hash=b"1") == 1
    await conversation.append("new")
    assert await _delete_all(conversation, request_id="d", request_hash=b"1") == 1
    assert await conversation.contents() == ["new"]
    with pytest.raises(RequestIdReused):
        await _delete_all(conversation, request_id="d", request_hash=b"2")


async def test_calls_at_once_delete_each_session_once(store: ConversationStorage) -> None:
    """Together they count what there was."""
    conversations = [Conversation(store, user_id="u" + new_name()) for _ in range(1)]
    [one] = conversations
    for each in [one, *(one.another() for _ in range(9))]:
        await each.append("one")
    counts = await asyncio.gather(*(store.delete_user_data(one.user_id) for _ in range(4)))
    assert sum(counts) == 10


async def test_sessions_that_come_meanwhile_are_whole(conversation: Conversation) -> None:
    """Whatever the deletion finds, nothing is left half there."""

    async def write() -> None:
        for number in range(30):
            await conversation.append(f"{number}", f"{number}!")

    async def delete() -> None:
        for _ in range(10):
            await _delete_all(conversation)

    await asyncio.gather(write(), delete())
    await conversation.append("last")
    messages = await conversation.messages()
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    listed = await conversation.store.list_session_ids(conversation.user_id, page_size=10, after=None)
    assert list(listed.session_ids) == [conversation.session_id]
