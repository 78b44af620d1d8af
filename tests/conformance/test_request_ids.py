"""A request takes effect once, however often it comes."""

import asyncio

import pytest

from services.storage.errors import RequestIdReused, RunInProgress, SessionDeleted, SessionNotFound
from services.storage.store.base import ConversationStorage
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import RUN_OUT, Conversation, new_name, said


async def test_a_repeat_finds_the_run_that_the_first_began(conversation: Conversation) -> None:
    """It stores nothing, also where the run has ended since."""
    first = await conversation.begin(request_id="r", request_hash=b"1")
    await conversation.finish(first, said("Hello to you"))
    again = await conversation.begin(request_id="r", request_hash=b"1")
    assert again.already_begun and not again.is_holder
    assert again.run == await conversation.store.get_run(conversation.user_id, first.run.run_id)
    assert again.session.message_count == 2


async def test_its_holder_gets_all_that_it_needs_again(conversation: Conversation) -> None:
    """Token, context and claimed question, as at first."""
    await conversation.turn()
    await conversation.ask_back()
    first = await conversation.begin("Harbor", request_id="r", request_hash=b"1", holder_id="h", max_context_messages=3)
    again = await conversation.begin("Harbor", request_id="r", request_hash=b"1", holder_id="h", max_context_messages=3)
    assert again.already_begun and again.is_holder
    assert (again.run, again.session, again.fencing_token) == (first.run, first.session, first.fencing_token)
    assert (tuple(again.context), again.context_truncated) == (tuple(first.context), first.context_truncated)
    assert again.claimed_task == first.claimed_task is not None


@pytest.mark.parametrize(("holder", "other"), [("h", "other"), ("h", ""), ("", "")])
async def test_anyone_else_gets_no_token(conversation: Conversation, holder: str, other: str) -> None:
    """An empty holder_id is nobody's."""
    await conversation.begin(request_id="r", request_hash=b"1", holder_id=holder)
    again = await conversation.begin(request_id="r", request_hash=b"1", holder_id=other, max_context_messages=10)
    assert again.already_begun and not again.is_holder
    assert (again.fencing_token, tuple(again.context), again.claimed_task) == (0, (), None)


async def test_the_holder_of_a_run_that_has_ended_holds_it_no_more(conversation: Conversation) -> None:
    """There is nothing left to write."""
    first = await conversation.begin(request_id="r", request_hash=b"1", holder_id="h")
    await conversation.finish(first)
    again = await conversation.begin(request_id="r", request_hash=b"1", holder_id="h")
    assert (again.is_holder, again.fencing_token) == (False, 0)


async def test_another_body_under_the_same_id_is_refused(conversation: Conversation) -> None:
    """And changes nothing, in that session or another."""
    await conversation.begin("first", request_id="r", request_hash=b"1")
    for each in (conversation, conversation.another()):
        with pytest.raises(RequestIdReused):
            await each.begin("second", request_id="r", request_hash=b"2")
    assert await conversation.contents() == ["first"]


@pytest.mark.parametrize("session_id", ["", "named"])
async def test_many_repeats_at_once_begin_one_run(store: ConversationStorage, session_id: str) -> None:
    """Whether or not the session's id is made by the store."""
    conversation = Conversation(store, session_id=session_id)
    begun = await asyncio.gather(*(conversation.begin(request_id="r", request_hash=b"1") for _ in range(15)))
    assert len({one.run.run_id for one in begun}) == 1
    assert sorted(one.already_begun for one in begun) == [False] + [True] * 14
    page = await store.list_sessions(conversation.user_id, page_size=10, after=None, full=False, max_bytes=100_000)
    assert [session.message_count for session in page.sessions] == [1]


async def test_a_refused_request_may_be_made_again(conversation: Conversation) -> None:
    """It left no record: once the way is free it takes effect."""
    busy = await conversation.begin()
    with pytest.raises(RunInProgress):
        await conversation.begin("second", request_id="r", request_hash=b"1")
    await conversation.finish(busy)
    assert not (await conversation.begin("second", request_id="r", request_hash=b"1")).already_begun


async def test_an_empty_request_id_promises_nothing(conversation: Conversation) -> None:
    """Two such requests are two."""
    for _ in range(2):
        await conversation.finish(await conversation.begin())
    assert len(await conversation.messages()) == 2


async def test_request_ids_are_a_users_own(conversation: Conversation) -> None:
    """Another user's same id is another request."""
    await conversation.begin(request_id="r", request_hash=b"1")
    other = Conversation(conversation.store, user_id=new_name())
    assert not (await other.begin(request_id="r", request_hash=b"2")).already_begun


async def test_request_ids_are_a_methods_own(conversation: Conversation) -> None:
    """The same id on another method is another request."""
    await conversation.begin(request_id="r", request_hash=b"1")
    store = conversation.store
    deleted = await store.delete_session(
        conversation.user_id, conversation.session_id, request_id="r", request_hash=b"2"
    )
    assert deleted == 1


async def test_a_late_repeat_brings_no_deleted_session_back(conversation: Conversation) -> None:
    """Nor does it touch a new session of the same id."""
    await conversation.begin("first", request_id="r", request_hash=b"1")
    await conversation.store.delete_session(conversation.user_id, conversation.session_id)
    with pytest.raises(SessionDeleted) as refusal:
        await conversation.begin("first", request_id="r", request_hash=b"1")
    assert refusal.value.metadata == {"session_id": conversation.session_id}
    with pytest.raises(SessionNotFound):
        await conversation.store.get_session(conversation.user_id, conversation.session_id)
    await conversation.turn("another")
    with pytest.raises(SessionDeleted):
        await conversation.begin("first", request_id="r", request_hash=b"1")
    assert "first" not in await conversation.contents()


async def test_a_request_is_new_again_after_a_day(conversation: Conversation, ageing: Ageing) -> None:
    """The record is kept no longer."""
    await conversation.finish(await conversation.begin(request_id="r", request_hash=b"1"))
    await ageing.pass_a_day(conversation.user_id)
    assert not (await conversation.begin(request_id="r", request_hash=b"2")).already_begun


async def test_a_repeat_finds_a_run_that_was_ended_for_its_holder(conversation: Conversation) -> None:
    """It shows how the run ended, and begins no other."""
    lost = await conversation.begin(request_id="r", request_hash=b"1", holder_id="h", lease=RUN_OUT)
    await conversation.finish(await conversation.begin("second"))
    again = await conversation.begin(request_id="r", request_hash=b"1", holder_id="h")
    assert again.run.run_id == lost.run.run_id
    assert again.run.error is not None and again.run.error.reason == "HOLDER_LOST"
    assert not again.is_holder
