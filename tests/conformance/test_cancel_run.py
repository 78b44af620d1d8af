"""A run is asked to stop, or ended where nobody holds it."""

import pytest

from services.storage.errors import LeaseLost, RunNotFound
from services.storage.models import HitlState, MessageStatus, RunStatus
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import NO_PATIENCE, RUN_OUT, Conversation, new_name, said


async def test_a_live_holder_is_asked_to_stop(conversation: Conversation) -> None:
    """The run goes on until its holder ends it; it is told by whatever it calls next."""
    begun = await conversation.begin()
    run = await conversation.store.cancel_run(conversation.user_id, begun.run.run_id)
    assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)
    assert run == await conversation.run(begun)
    renewed = await conversation.store.renew_run(
        conversation.user_id, begun.run.run_id, fencing_token=begun.fencing_token
    )
    assert renewed.cancel_requested
    assert (await conversation.tell(begun, "Hel")).cancel_requested


@pytest.mark.parametrize("status", [RunStatus.CANCELLED, RunStatus.COMPLETED])
async def test_how_a_run_ends_is_its_holders_to_say(conversation: Conversation, status: RunStatus) -> None:
    """It may have been done already when it was asked."""
    begun = await conversation.begin()
    await conversation.store.cancel_run(conversation.user_id, begun.run.run_id)
    finished = await conversation.finish(begun, said("Hel"), status=status)
    assert (finished.run.status, finished.run.cancel_requested) == (status, True)


async def test_a_dead_run_ends_at_once(conversation: Conversation) -> None:
    """What it had told is kept as STOPPED, its question is PENDING again, and the session is free."""
    task = await conversation.ask_back()
    lost = await conversation.begin("Harbor", lease=RUN_OUT)
    await conversation.tell(lost, "half a ", "reply")
    run = await conversation.store.cancel_run(conversation.user_id, lost.run.run_id)
    assert (run.status, run.error, run.cancel_requested) == (RunStatus.CANCELLED, None, True)
    assert run.finish_time is not None
    reply = (await conversation.messages())[-1]
    assert (reply.content, reply.status, reply.message_id) == ("half a reply", MessageStatus.STOPPED, run.ai_message_id)
    assert (await conversation.store.get_hitl_task(conversation.user_id, task.task_id)).state is HitlState.PENDING
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert (session.active_run_id, session.pending_hitl_task_id) == ("", task.task_id)
    assert session.revision == run.session_revision
    with pytest.raises(LeaseLost):
        await conversation.finish(lost, said("too late"))


async def test_a_run_that_waits_ends_at_once(conversation: Conversation) -> None:
    """Nothing of its message is stored, and those behind it move up."""
    await conversation.begin("first")
    second = await conversation.enqueue("second", patience=NO_PATIENCE)
    assert (await conversation.enqueue("third", patience=NO_PATIENCE)).queued_ahead == 2
    run = await conversation.store.cancel_run(conversation.user_id, second.run.run_id)
    assert (run.status, run.human_position) == (RunStatus.CANCELLED, 0)
    assert (await conversation.enqueue("third", patience=NO_PATIENCE)).queued_ahead == 1
    assert await conversation.contents() == ["first"]


async def test_a_run_that_has_ended_stays_as_it_is(conversation: Conversation) -> None:
    """However it ended, and however often it is cancelled."""
    finished = await conversation.turn()
    for _ in range(2):
        run = await conversation.store.cancel_run(conversation.user_id, finished.run.run_id)
        assert run == finished.run
    second = await conversation.begin(lease=RUN_OUT)
    cancelled = await conversation.store.cancel_run(conversation.user_id, second.run.run_id)
    assert await conversation.store.cancel_run(conversation.user_id, second.run.run_id) == cancelled


async def test_a_renewed_lease_makes_it_its_holders_again(conversation: Conversation, ageing: Ageing) -> None:
    """Late, but nobody had ended it."""
    begun = await conversation.begin()
    await ageing.expire_lease(conversation.user_id, begun.run.run_id)
    await conversation.store.renew_run(conversation.user_id, begun.run.run_id, fencing_token=begun.fencing_token)
    run = await conversation.store.cancel_run(conversation.user_id, begun.run.run_id)
    assert run.status is RunStatus.RUNNING


async def test_a_run_of_another_is_not_found(conversation: Conversation) -> None:
    """As one that nobody has; it is asked nothing."""
    begun = await conversation.begin()
    for user_id, run_id in ((new_name(), begun.run.run_id), (conversation.user_id, "nobody's")):
        with pytest.raises(RunNotFound) as refusal:
            await conversation.store.cancel_run(user_id, run_id)
        assert refusal.value.metadata == {"run_id": run_id}
    assert not (await conversation.run(begun)).cancel_requested
