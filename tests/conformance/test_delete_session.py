"""Deleted stays deleted."""

import asyncio

import pytest

from services.storage.errors import HitlTaskNotFound, LeaseLost, RequestIdReused, RunNotFound, SessionNotFound
from tests.conformance.conversation import MIB, Conversation, said


async def _delete(conversation: Conversation, *, request_id: str = "", request_hash: bytes = b"") -> int:
    return await conversation.store.delete_session(
        conversation.user_id, conversation.session_id, request_id=request_id, request_hash=request_hash
    )


async def test_deleting_removes_all_that_belongs_to_the_session(conversation: Conversation) -> None:
    """Messages, runs and questions; it tells how many messages there were."""
    task = await conversation.ask_back()
    assert await _delete(conversation) == 2
    store, user_id = conversation.store, conversation.user_id
    with pytest.raises(SessionNotFound):
        await conversation.messages()
    with pytest.raises(RunNotFound):
        await store.get_run(user_id, task.run_id)
    with pytest.raises(HitlTaskNotFound):
        await store.get_hitl_task(user_id, task.task_id)
    assert not (await store.list_session_ids(user_id, page_size=10, after=None)).session_ids
    assert not (await store.list_hitl_tasks(user_id, page_size=10, after=None, max_bytes=MIB)).tasks


async def test_other_sessions_stay(conversation: Conversation) -> None:
    """Those of the same user too."""
    other = conversation.another()
    await conversation.turn()
    await other.turn("still here")
    await _delete(conversation)
    assert (await other.contents())[0] == "still here"


async def test_a_run_under_way_finds_nothing_from_then_on(conversation: Conversation) -> None:
    """It can neither renew nor finish."""
    begun = await conversation.begin()
    await _delete(conversation)
    with pytest.raises(RunNotFound):
        await conversation.store.renew_run(conversation.user_id, begun.run.run_id, fencing_token=begun.fencing_token)
    with pytest.raises(RunNotFound):
        await conversation.finish(begun, said("too late"))


async def test_the_same_id_begins_anew(conversation: Conversation) -> None:
    """With another uid, at revision 1 and position 1, and without an old run's reply."""
    old = await conversation.begin("old")
    await _delete(conversation)
    new = await conversation.begin("new")
    assert new.session.uid != old.session.uid
    assert (new.session.revision, new.run.human_position) == (1, 1)
    with pytest.raises(RunNotFound):
        await conversation.finish(old, said("old reply"))
    assert await conversation.contents() == ["new"]


async def test_deleting_an_unknown_session_is_told(conversation: Conversation) -> None:
    """And one that was deleted before, by another request."""
    with pytest.raises(SessionNotFound):
        await _delete(conversation)
    await conversation.turn()
    await _delete(conversation, request_id="d-1")
    with pytest.raises(SessionNotFound):
        await _delete(conversation, request_id="d-2")


async def test_a_repeated_deletion_gets_the_first_answer(conversation: Conversation) -> None:
    """It deletes no session that has come since."""
    await conversation.turn()
    assert await _delete(conversation, request_id="d", request_hash=b"1") == 2
    assert await _delete(conversation, request_id="d", request_hash=b"1") == 2
    await conversation.begin("new")
    assert await _delete(conversation, request_id="d", request_hash=b"1") == 2
    assert await conversation.contents() == ["new"]


async def test_another_deletion_under_the_same_id_is_refused(conversation: Conversation) -> None:
    """Nothing is deleted."""
    other = conversation.another()
    await conversation.turn()
    await other.turn()
    await _delete(conversation, request_id="d", request_hash=b"1")
    with pytest.raises(RequestIdReused):
        await _delete(other, request_id="d", request_hash=b"2")
    assert len(await other.messages()) == 2


async def test_of_many_deletions_at_once_one_deletes(conversation: Conversation) -> None:
    """The others find nothing."""
    await conversation.turn()
    outcomes = await asyncio.gather(*(_delete(conversation) for _ in range(8)), return_exceptions=True)
    assert sorted(str(type(outcome).__name__) for outcome in outcomes) == ["SessionNotFound"] * 7 + ["int"]


async def test_a_deletion_amid_turns_leaves_a_whole_session_or_none(conversation: Conversation) -> None:
    """Whatever comes first: no message outlives its session, and none is without its turn."""

    async def talk() -> None:
        for _ in range(10):
            try:
                await conversation.turn()
            except (RunNotFound, LeaseLost):
                continue

    async def delete() -> None:
        for _ in range(10):
            try:
                await _delete(conversation)
            except SessionNotFound:
                await asyncio.sleep(0)

    await asyncio.gather(talk(), delete())
    await conversation.turn()
    messages = await conversation.messages()
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    assert session.message_count == session.revision == len(messages)
