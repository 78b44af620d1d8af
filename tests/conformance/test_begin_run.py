"""A run begins with the user's message stored, and the session its own."""

import asyncio
from datetime import timedelta

import pytest

from services.storage.errors import RunInProgress, SessionNotFound
from services.storage.models import MessageStatus, MessageType, RunStatus
from services.storage.store.base import ConversationStorage
from tests.conformance.conversation import Conversation, said


async def test_the_message_is_stored_as_the_users_once_the_run_has_begun(conversation: Conversation) -> None:
    """It is HUMAN and COMPLETE, at the position and by the id that the run names."""
    begun = await conversation.begin("How long is it kept?")
    [message] = await conversation.messages()
    assert (message.type, message.status, message.content) == (
        MessageType.HUMAN,
        MessageStatus.COMPLETE,
        "How long is it kept?",
    )
    assert (message.position, message.message_id, message.run_id) == (
        begun.run.human_position,
        begun.run.human_message_id,
        begun.run.run_id,
    )


async def test_an_unknown_session_comes_into_being(conversation: Conversation) -> None:
    """It has revision 1 and one message, and names the run that holds it."""
    begun = await conversation.begin()
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert session == begun.session
    assert (session.revision, session.message_count, session.active_run_id) == (1, 1, begun.run.run_id)


async def test_an_empty_session_id_stands_for_a_new_session(store: ConversationStorage) -> None:
    """Each such run gets a session of its own."""
    nameless = Conversation(store, session_id="")
    first, second = await nameless.begin(), await nameless.begin()
    assert first.run.session_id and second.run.session_id
    assert first.run.session_id != second.run.session_id


async def test_a_begun_run_is_running_and_held_by_its_caller(conversation: Conversation) -> None:
    """It is new, RUNNING, and has a lease of the length asked for."""
    begun = await conversation.begin(lease=timedelta(seconds=90), request_id="r-1")
    assert begun.is_holder and not begun.already_begun
    assert begun.run.status is RunStatus.RUNNING
    assert begun.run.request_id == "r-1"
    assert begun.run.lease_expire_time - begun.run.create_time == timedelta(seconds=90)
    assert await conversation.store.get_run(conversation.user_id, begun.run.run_id) == begun.run


async def test_whoever_holds_the_run_gets_its_message(conversation: Conversation) -> None:
    """As it is stored; also when the request comes again, and nobody else does."""
    begun = await conversation.begin("Hello", request_id="r", request_hash=b"1", holder_id="h")
    assert [begun.human_message] == await conversation.messages()
    again = await conversation.begin("Hello", request_id="r", request_hash=b"1", holder_id="h")
    other = await conversation.begin("Hello", request_id="r", request_hash=b"1", holder_id="other")
    assert (again.human_message, other.human_message) == (begun.human_message, None)


async def test_a_session_has_one_run_at_a_time(conversation: Conversation) -> None:
    """A second one is refused, told which run is in the way and when to try again, and stores nothing."""
    begun = await conversation.begin("first")
    with pytest.raises(RunInProgress) as refusal:
        await conversation.begin("second")
    assert refusal.value.metadata == {"active_run_id": begun.run.run_id}
    assert refusal.value.retry_after_s is not None and 0 < refusal.value.retry_after_s <= 1
    assert await conversation.contents() == ["first"]


async def test_many_first_messages_at_once_begin_one_run(conversation: Conversation) -> None:
    """Of any number at once to a session that does not exist, one begins and the others find it under way."""
    outcomes = await asyncio.gather(*(conversation.begin(f"message {n}") for n in range(20)), return_exceptions=True)
    begun = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(begun) == 1
    assert [type(outcome) for outcome in outcomes if outcome not in begun] == [RunInProgress] * 19
    assert len(await conversation.messages()) == 1


async def test_runs_of_different_sessions_do_not_meet(conversation: Conversation) -> None:
    """First messages at once to many sessions of one user all begin."""
    others = [conversation.another() for _ in range(12)]
    begun = await asyncio.gather(*(other.begin() for other in others))
    assert all(run.is_holder for run in begun)


async def test_fencing_tokens_grow_with_each_run(conversation: Conversation) -> None:
    """A session never gives the same token twice."""
    tokens = []
    for _ in range(3):
        begun = await conversation.begin()
        tokens.append(begun.fencing_token)
        await conversation.finish(begun)
    assert tokens == sorted(set(tokens))


async def test_a_new_session_takes_the_title_given(conversation: Conversation) -> None:
    """It keeps it when a later run brings another."""
    await conversation.finish(await conversation.begin(title_if_new="Retention"))
    begun = await conversation.begin(title_if_new="Another")
    assert begun.session.title == "Retention"


async def test_a_session_without_a_title_is_shown_by_its_id(conversation: Conversation) -> None:
    """It still takes the first title that comes."""
    untitled = await conversation.begin()
    assert untitled.session.title == conversation.session_id
    await conversation.finish(untitled)
    assert (await conversation.begin(title_if_new="Retention")).session.title == "Retention"


async def test_a_refused_run_leaves_no_session(conversation: Conversation) -> None:
    """What fails in a session that it would have made makes none."""
    with pytest.raises(Exception, match="no such question"):
        await conversation.begin(answers_task_id="nobody asked")
    with pytest.raises(SessionNotFound):
        await conversation.store.get_session(conversation.user_id, conversation.session_id)


async def test_positions_run_on_without_gaps_over_many_turns(conversation: Conversation) -> None:
    """A turn that says nothing takes one position, any other two."""
    await conversation.turn()
    await conversation.finish(await conversation.begin("never answered"), status=RunStatus.FAILED)
    await conversation.turn()
    assert [message.position for message in await conversation.messages()] == [1, 2, 3, 4, 5]


async def test_each_committed_change_raises_the_revision_by_one(conversation: Conversation) -> None:
    """Beginning and finishing are one change each; a refused run is none."""
    begun = await conversation.begin()
    with pytest.raises(RunInProgress):
        await conversation.begin()
    finished = await conversation.finish(begun, said("Hello to you"))
    assert (begun.session.revision, finished.session.revision) == (1, 2)
    assert finished.run.session_revision == 2
