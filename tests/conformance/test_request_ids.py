"""A request takes effect once, however often it comes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from services.storage.errors import RequestIdReused, RevisionMismatch, RunInProgress, SessionDeleted, SessionNotFound
from services.storage.models import NewMessage, Session
from services.storage.store.base import ConversationStorage
from services.storage.store.results import AppendedMessages, DeletedMessages
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


Write = Callable[[Conversation, bytes], Awaitable[object]]

_WRITES: dict[str, Write] = {
    "append_messages": lambda conversation, body: conversation.append("new", request_id="r", request_hash=body),
    "save_session": lambda conversation, body: conversation.save(
        "new", metadata={"a": 1}, request_id="r", request_hash=body
    ),
    "update_session": lambda conversation, body: conversation.update(title="new", request_id="r", request_hash=body),
    "update_session (metadata)": lambda conversation, body: conversation.update(
        metadata={"a": 1}, request_id="r", request_hash=body
    ),
    "update_session (nothing)": lambda conversation, body: conversation.update(request_id="r", request_hash=body),
    "delete_messages": lambda conversation, body: conversation.delete_messages(
        after=1, request_id="r", request_hash=body
    ),
    "delete_messages (nothing)": lambda conversation, body: conversation.delete_messages(
        after=7, request_id="r", request_hash=body
    ),
}


def _said_of(answer: object) -> object:
    """The answer, but for whether it is a repeat's."""
    return replace(answer, is_repeat=False) if isinstance(answer, AppendedMessages) else answer


every_write = pytest.mark.parametrize("name", list(_WRITES))


@every_write
async def test_a_repeated_write_changes_nothing(conversation: Conversation, name: str) -> None:
    """It gets the first answer."""
    await conversation.append("one", "two", "three")
    first = await _WRITES[name](conversation, b"1")
    before, messages = await conversation.session(), await conversation.messages()
    assert _said_of(await _WRITES[name](conversation, b"1")) == first
    assert (await conversation.session(), await conversation.messages()) == (before, messages)


@every_write
async def test_a_repeated_write_finds_the_session_as_it_is_by_now(conversation: Conversation, name: str) -> None:
    """What has been written since stays."""
    await conversation.append("one", "two", "three")
    first = await _WRITES[name](conversation, b"1")
    await conversation.append("later")
    before, messages = await conversation.session(), await conversation.messages()
    again = await _WRITES[name](conversation, b"1")
    if isinstance(again, AppendedMessages):
        assert isinstance(first, AppendedMessages) and tuple(again.messages) == tuple(first.messages)
    if isinstance(again, DeletedMessages):
        assert isinstance(first, DeletedMessages) and again.count == first.count
    assert (again if isinstance(again, Session) else getattr(again, "session", None)) == before
    assert (await conversation.session(), await conversation.messages()) == (before, messages)


@every_write
async def test_a_write_with_another_body_under_the_same_id_is_refused(conversation: Conversation, name: str) -> None:
    """In this session or another, and nothing changes."""
    other = conversation.another()
    for each in (conversation, other):
        await each.append("one", "two", "three")
    await _WRITES[name](conversation, b"1")
    for each in (conversation, other):
        before = await each.session()
        with pytest.raises(RequestIdReused):
            await _WRITES[name](each, b"2")
        assert await each.session() == before


@every_write
async def test_many_repeats_of_a_write_at_once_take_effect_once(conversation: Conversation, name: str) -> None:
    """They all get one answer."""
    await conversation.append("one", "two", "three")
    answers = await asyncio.gather(*(_WRITES[name](conversation, b"1") for _ in range(12)))
    assert all(_said_of(answer) == _said_of(answers[0]) for answer in answers)
    assert (await conversation.session()).revision == (1 if "nothing" in name else 2)


@pytest.mark.parametrize("name", ["append_messages", "save_session"])
async def test_many_repeats_at_once_make_one_session(conversation: Conversation, name: str) -> None:
    """Where there was none."""
    answers = await asyncio.gather(*(_WRITES[name](conversation, b"1") for _ in range(12)))
    assert all(_said_of(answer) == _said_of(answers[0]) for answer in answers)
    assert await conversation.contents() == ["new"]
    assert (await conversation.session()).revision == 1


@every_write
async def test_a_late_repeat_of_a_write_finds_its_session_deleted(conversation: Conversation, name: str) -> None:
    """Whether or not there is another of its id by then, which it leaves alone."""
    await conversation.append("one", "two", "three")
    await _WRITES[name](conversation, b"1")
    await conversation.delete()
    with pytest.raises(SessionDeleted) as refusal:
        await _WRITES[name](conversation, b"1")
    assert refusal.value.metadata == {"session_id": conversation.session_id}
    with pytest.raises(SessionNotFound):
        await conversation.session()
    before = (await conversation.append("another", "one")).session
    with pytest.raises(SessionDeleted):
        await _WRITES[name](conversation, b"1")
    assert await conversation.session() == before


@every_write
async def test_a_write_is_new_again_after_a_day(conversation: Conversation, ageing: Ageing, name: str) -> None:
    """Under any body, and is then remembered for a day as well."""
    await conversation.append("one", "two", "three")
    await _WRITES[name](conversation, b"1")
    await ageing.pass_a_day(conversation.user_id)
    before = await conversation.session()
    await conversation.append("two")
    await _WRITES[name](conversation, b"2")
    after = await conversation.session()
    assert after.revision == before.revision + (1 if "nothing" in name else 2)
    await _WRITES[name](conversation, b"2")
    assert await conversation.session() == after


@every_write
async def test_a_refused_write_leaves_no_record(conversation: Conversation, name: str) -> None:
    """It takes effect once nothing stands in its way, under any body."""
    await conversation.append("one", "two", "three")
    await conversation.delete()
    with pytest.raises((SessionNotFound, RevisionMismatch)):
        if name == "append_messages":
            await conversation.append("new", expected_revision=1, request_id="r", request_hash=b"0")
        elif name == "save_session":
            await conversation.save("new", expected_revision=1, request_id="r", request_hash=b"0")
        else:
            await _WRITES[name](conversation, b"0")
    await conversation.append("one", "two", "three")
    await _WRITES[name](conversation, b"1")
    assert (await conversation.session()).revision == (1 if "nothing" in name else 2)


@pytest.mark.parametrize("name", ["append_messages", "save_session"])
async def test_a_repeat_is_known_where_its_revision_has_passed(conversation: Conversation, name: str) -> None:
    """It is what has moved the revision itself; so is one that comes at the same time."""
    await conversation.append("one")

    async def write() -> object:
        if name == "append_messages":
            return await conversation.append("two", expected_revision=1, request_id="r", request_hash=b"1")
        return await conversation.save("two", expected_revision=1, request_id="r", request_hash=b"1")

    answers = await asyncio.gather(*(write() for _ in range(8)))
    answers.append(await write())
    assert all(_said_of(answer) == _said_of(answers[0]) for answer in answers)
    assert (await conversation.session()).revision == 2


async def test_a_repeat_is_known_while_a_run_holds_the_session(conversation: Conversation) -> None:
    """It took effect before that."""
    first = await conversation.append("one", request_id="r", request_hash=b"1")
    begun = await conversation.begin("two")
    again = await conversation.append("one", request_id="r", request_hash=b"1")
    assert (tuple(again.messages), again.session) == (tuple(first.messages), begun.session)


async def test_a_repeated_append_has_its_messages_as_they_were_stored(conversation: Conversation) -> None:
    """Their ids, given and made, their places and times, also where they have been taken back since."""
    messages: list[str | NewMessage] = ["one", said("two", message_id="m-2", trace=b"trace", extra_json="{}"), "three"]
    first = await conversation.append(*messages, request_id="r", request_hash=b"1")
    await conversation.delete_messages(after=1)
    again = await conversation.append(*messages, request_id="r", request_hash=b"1")
    assert tuple(again.messages) == tuple(first.messages)
    assert (first.is_repeat, again.is_repeat, again.session.message_count) == (False, True, 1)
