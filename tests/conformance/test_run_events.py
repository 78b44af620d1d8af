"""What a run tells is kept in its log, by its holder alone."""

import pytest

from services.storage.errors import LeaseLost, RunNotFound
from services.storage.models import RunEvent, RunStatus
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import NO_PATIENCE, RUN_OUT, Conversation, new_name, said

EVENT = RunEvent(sequence=1, payload=b"event")


async def test_events_are_added_in_order(conversation: Conversation) -> None:
    """The last sequence is told; one that is stored already is passed over."""
    begun = await conversation.begin()
    assert (await conversation.tell(begun, "a", "b")).last_sequence == 2
    again = await conversation.tell(begun, "a", "b", "c")
    assert (again.last_sequence, again.cancel_requested) == (3, False)


async def test_events_change_nothing_of_the_session(conversation: Conversation) -> None:
    """They are not part of it."""
    begun = await conversation.begin()
    await conversation.tell(begun, "a")
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert session == begun.session


async def test_a_holder_may_tell_of_the_end_after_it_has_finished(conversation: Conversation) -> None:
    """Until the last event, and no longer."""
    begun = await conversation.begin()
    await conversation.finish(begun, said("Hello"))
    names = {"user_id": conversation.user_id, "run_id": begun.run.run_id}
    for sequence, last in ((1, False), (2, True)):
        event = RunEvent(sequence=sequence, payload=b"event", last=last)
        await conversation.store.append_run_events(**names, fencing_token=begun.fencing_token, events=[event])
    with pytest.raises(LeaseLost):
        await conversation.store.append_run_events(
            **names, fencing_token=begun.fencing_token, events=[RunEvent(sequence=3, payload=b"event")]
        )


async def test_another_token_tells_nothing(conversation: Conversation) -> None:
    """Older or newer."""
    begun = await conversation.begin()
    for token in (begun.fencing_token - 1, begun.fencing_token + 1):
        with pytest.raises(LeaseLost) as refusal:
            await conversation.store.append_run_events(
                conversation.user_id, begun.run.run_id, fencing_token=token, events=[EVENT]
            )
        assert refusal.value.metadata == {"run_id": begun.run.run_id}


async def test_a_holder_that_is_late_tells_on_while_nobody_has_ended_its_run(
    conversation: Conversation, ageing: Ageing
) -> None:
    """As it may renew and finish it."""
    begun = await conversation.begin()
    await ageing.expire_lease(conversation.user_id, begun.run.run_id)
    assert (await conversation.tell(begun, "a")).last_sequence == 1


async def test_a_run_that_was_ended_for_its_holder_tells_no_more(conversation: Conversation) -> None:
    """Though it never told anything."""
    lost = await conversation.begin(lease=RUN_OUT)
    await conversation.begin()
    with pytest.raises(LeaseLost):
        await conversation.tell(lost, "a")


async def test_a_run_that_waits_has_nothing_to_tell(conversation: Conversation) -> None:
    """It has no holder."""
    await conversation.begin()
    queued = await conversation.enqueue("next", patience=NO_PATIENCE)
    assert queued.run.status is RunStatus.QUEUED
    with pytest.raises(LeaseLost):
        await conversation.tell(queued, "a")


async def test_an_unknown_run_is_not_found(conversation: Conversation) -> None:
    """Nor is another user's, or one of a session that was deleted."""
    begun = await conversation.begin()
    await conversation.store.delete_session(conversation.user_id, conversation.session_id)
    other = await conversation.begin()
    for user_id, run_id in (
        (new_name(), other.run.run_id),
        (conversation.user_id, "nobody's"),
        (conversation.user_id, begun.run.run_id),
    ):
        with pytest.raises(RunNotFound):
            await conversation.store.append_run_events(user_id, run_id, fencing_token=1, events=[EVENT])
