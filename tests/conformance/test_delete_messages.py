"""The messages after a position are taken back."""

import asyncio

import pytest

from services.storage.errors import (
    HitlTaskNotPending,
    RevisionMismatch,
    RunInProgress,
    SessionNotFound,
)
from services.storage.models import HitlState, RunStatus
from tests.conformance.conversation import RUN_OUT, Conversation, said


async def test_what_follows_the_position_goes(conversation: Conversation) -> None:
    """It tells how many; positions go on from there."""
    await conversation.append("one", "two", "three", "four")
    deleted = await conversation.delete_messages(after=2)
    assert deleted.count == 2
    assert deleted.session == await conversation.session()
    assert (deleted.session.revision, deleted.session.message_count) == (2, 2)
    assert (await conversation.append("five")).messages[0].position == 3
    assert await conversation.contents() == ["one", "two", "five"]


async def test_after_position_0_all_go(conversation: Conversation) -> None:
    """The session stays, and is the same."""
    before = (await conversation.append("one", "two")).session
    deleted = await conversation.delete_messages(after=0)
    assert (deleted.count, deleted.session.message_count) == (2, 0)
    assert deleted.session.uid == before.uid
    assert await conversation.messages() == []


@pytest.mark.parametrize("after", [2, 3, 2**62])
async def test_nothing_to_take_back_changes_nothing(conversation: Conversation, after: int) -> None:
    """Not the revision either."""
    before = (await conversation.append("one", "two")).session
    deleted = await conversation.delete_messages(after=after)
    assert (deleted.session, deleted.count) == (before, 0)
    assert await conversation.session() == before


async def test_an_id_that_was_taken_back_may_come_again(conversation: Conversation) -> None:
    """At another place."""
    await conversation.append("one", said("two", message_id="m-2"))
    await conversation.delete_messages(after=0)
    assert (await conversation.append(said("again", message_id="m-2"))).messages[0].position == 1


async def test_a_question_that_waits_among_them_is_cancelled(conversation: Conversation) -> None:
    """The next message is a new one."""
    await conversation.append("one")
    task = await conversation.ask_back()
    deleted = await conversation.delete_messages(after=1)
    assert deleted.session.pending_hitl_task_id == ""
    stored = await conversation.store.get_hitl_task(conversation.user_id, task.task_id)
    assert stored.state is HitlState.CANCELLED
    with pytest.raises(HitlTaskNotPending):
        await conversation.begin("Harbor", answers_task_id=task.task_id)
    assert (await conversation.begin("Harbor")).claimed_task is None


async def test_a_question_that_stays_goes_on_waiting(conversation: Conversation) -> None:
    """What was added after it may go."""
    task = await conversation.ask_back()
    await conversation.append("three")
    deleted = await conversation.delete_messages(after=2)
    assert deleted.session.pending_hitl_task_id == task.task_id


async def test_a_question_that_a_failed_run_gave_back_stays_with_its_message(conversation: Conversation) -> None:
    """The answer that came to nothing may be taken back."""
    task = await conversation.ask_back()
    await conversation.finish(await conversation.begin("Harbor"), said("sor"), status=RunStatus.FAILED)
    deleted = await conversation.delete_messages(after=2)
    assert deleted.session.pending_hitl_task_id == task.task_id
    assert (await conversation.delete_messages(after=1)).session.pending_hitl_task_id == ""


async def test_a_run_names_no_message_that_is_gone(conversation: Conversation) -> None:
    """Its position is another's from then on."""
    first = await conversation.turn("one", said("two"))
    second = await conversation.turn("three", said("four"))
    await conversation.delete_messages(after=3)
    store = conversation.store
    run = await store.get_run(conversation.user_id, second.run.run_id)
    assert (run.human_position, run.ai_position, run.ai_message_id) == (3, 0, "")
    assert await store.get_run(conversation.user_id, first.run.run_id) == first.run


async def test_the_note_speaks_of_nothing_that_is_gone(conversation: Conversation) -> None:
    """So that the next one, of what comes instead, can replace it."""
    await conversation.append("one", "two", "three")
    await conversation.update(note="of three", note_through_position=3)
    deleted = await conversation.delete_messages(after=1)
    assert (deleted.session.note, deleted.session.note_through_position) == ("of three", 1)
    await conversation.append("other two")
    assert (await conversation.update(note="of other two", note_through_position=2)).note == "of other two"


async def test_nobody_takes_back_under_a_run(conversation: Conversation) -> None:
    """A run whose lease has run out is ended first."""
    begun = await conversation.begin("question")
    with pytest.raises(RunInProgress):
        await conversation.delete_messages(after=0)
    await conversation.finish(begun, said("answer"))
    await conversation.begin("lost", lease=RUN_OUT)
    deleted = await conversation.delete_messages(after=1)
    assert (deleted.count, deleted.session.active_run_id) == (2, "")
    assert await conversation.contents() == ["question"]


async def test_a_session_that_is_not_there_is_not_found(conversation: Conversation) -> None:
    """Whatever was expected of it."""
    with pytest.raises(SessionNotFound):
        await conversation.delete_messages(after=0, request_id="r")
    with pytest.raises(SessionNotFound):
        await conversation.delete_messages(after=0, expected_revision=1)


async def test_a_session_that_is_not_as_expected_is_left_alone(conversation: Conversation) -> None:
    """Also where there is nothing to take back."""
    await conversation.append("one")
    for after in (0, 1):
        with pytest.raises(RevisionMismatch):
            await conversation.delete_messages(after=after, expected_revision=7)
    assert await conversation.contents() == ["one"]


async def test_appends_amid_deletions_leave_no_gap(conversation: Conversation) -> None:
    """Whatever comes first."""

    async def append() -> None:
        for number in range(20):
            await conversation.append(f"{number}", f"{number}!")

    async def take_back() -> None:
        for _ in range(20):
            await conversation.delete_messages(after=3)

    await conversation.append("first")
    await asyncio.gather(append(), append(), take_back())
    messages = await conversation.messages()
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    assert (await conversation.session()).message_count == len(messages)
