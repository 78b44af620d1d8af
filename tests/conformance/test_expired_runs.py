"""A holder that died frees its session within the lease, and loses nothing of what was said."""

import asyncio

import pytest

from services.storage.errors import HitlTaskPending, LeaseLost, RunInProgress
from services.storage.models import HitlState, MessageStatus, MessageType, PendingHitlPolicy, Run, RunStatus
from services.storage.store.results import BegunRun
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import RUN_OUT, Conversation, said


async def test_a_run_whose_lease_ran_out_gives_way_to_the_next(conversation: Conversation) -> None:
    """It ends FAILED, with the reason HOLDER_LOST; its message stays."""
    lost = await conversation.begin("first", lease=RUN_OUT)
    begun = await conversation.begin("second")
    ended = await conversation.store.get_run(conversation.user_id, lost.run.run_id)
    assert ended.status is RunStatus.FAILED
    assert ended.error is not None and (ended.error.code, ended.error.reason) == (14, "HOLDER_LOST")
    assert ended.finish_time is not None
    assert await conversation.contents() == ["first", "second"]
    assert begun.session.active_run_id == begun.run.run_id


async def test_only_one_of_many_takes_the_place_of_a_lost_run(conversation: Conversation) -> None:
    """The others find it under way."""
    await conversation.begin("first", lease=RUN_OUT)
    outcomes = await asyncio.gather(*(conversation.begin() for _ in range(10)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BegunRun"] + ["RunInProgress"] * 9


async def test_a_lost_run_finishes_no_more_once_another_has_begun(conversation: Conversation) -> None:
    """Its late reply is refused, and nothing of it is stored."""
    lost = await conversation.begin("first", lease=RUN_OUT)
    begun = await conversation.begin("second")
    with pytest.raises(LeaseLost):
        await conversation.finish(lost, said("too late"))
    await conversation.finish(begun, said("in time"))
    assert await conversation.contents() == ["first", "second", "in time"]


async def test_a_run_whose_lease_ran_out_may_finish_while_nobody_has_ended_it(conversation: Conversation) -> None:
    """Nothing is lost by being late, as long as nobody else came."""
    begun = await conversation.begin("first", lease=RUN_OUT)
    finished = await conversation.finish(begun, said("late, but welcome"))
    assert finished.run.status is RunStatus.COMPLETED


async def test_a_renewed_lease_keeps_others_out(conversation: Conversation, ageing: Ageing) -> None:
    """However near its end it was."""
    begun = await conversation.begin()
    await ageing.expire_lease(conversation.user_id, begun.run.run_id)
    await conversation.store.renew_run(conversation.user_id, begun.run.run_id, fencing_token=begun.fencing_token)
    with pytest.raises(RunInProgress):
        await conversation.begin()


async def test_a_renewal_and_a_new_run_at_once_never_both_hold_the_session(
    conversation: Conversation, ageing: Ageing
) -> None:
    """Either the lease is renewed and the new run refused, or the new run has the session."""
    held = await conversation.begin()
    for _ in range(10):
        await ageing.expire_lease(conversation.user_id, held.run.run_id)
        renewed, begun = await asyncio.gather(
            conversation.store.renew_run(conversation.user_id, held.run.run_id, fencing_token=held.fencing_token),
            conversation.begin(),
            return_exceptions=True,
        )
        if isinstance(begun, BegunRun):
            assert isinstance(renewed, LeaseLost)
            held = begun
        else:
            assert isinstance(begun, RunInProgress)
            assert isinstance(renewed, Run)


async def test_the_question_of_a_lost_run_is_pending_again(conversation: Conversation) -> None:
    """It can be answered by name, by whoever comes next."""
    task = await conversation.ask_back()
    await conversation.begin("Harbor", answers_task_id=task.task_id, lease=RUN_OUT)
    begun = await conversation.begin("Lighthouse", answers_task_id=task.task_id)
    assert begun.claimed_task is not None and begun.claimed_task.task_id == task.task_id


async def test_the_next_message_answers_the_question_of_a_lost_run(conversation: Conversation) -> None:
    """As it would have, had the run never been."""
    task = await conversation.ask_back()
    await conversation.begin("Harbor", lease=RUN_OUT)
    begun = await conversation.begin("Harbor")
    assert begun.claimed_task is not None and begun.claimed_task.task_id == task.task_id


async def test_a_lost_run_is_ended_even_by_a_message_that_is_refused(conversation: Conversation) -> None:
    """Its question is seen as PENDING from then on."""
    task = await conversation.ask_back()
    lost = await conversation.begin("Harbor", lease=RUN_OUT)
    with pytest.raises(HitlTaskPending):
        await conversation.begin("Something else", policy=PendingHitlPolicy.REJECT)
    assert (await conversation.store.get_run(conversation.user_id, lost.run.run_id)).status is RunStatus.FAILED
    assert (await conversation.store.get_hitl_task(conversation.user_id, task.task_id)).state is HitlState.PENDING
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert (session.active_run_id, session.pending_hitl_task_id) == ("", task.task_id)


async def test_what_a_lost_run_had_told_is_kept(conversation: Conversation) -> None:
    """As a FAILED reply, of the run, before the message that found it; it counts as context."""
    lost = await conversation.begin("first", lease=RUN_OUT)
    await conversation.tell(lost, "half a ", "reply")
    begun = await conversation.begin("second", max_context_messages=10)
    ended = await conversation.run(lost)
    _, reply, second = await conversation.messages()
    assert (reply.type, reply.status, reply.content) == (MessageType.AI, MessageStatus.FAILED, "half a reply")
    assert (reply.position, reply.message_id, reply.run_id) == (2, ended.ai_message_id, lost.run.run_id)
    assert (ended.ai_position, second.position) == (2, 3)
    assert [message.content for message in begun.context] == ["first", "half a reply"]
    assert begun.session.message_count == 3


async def test_each_end_of_a_lost_run_is_one_change(conversation: Conversation) -> None:
    """The revision grows by one for it, and by one for the message."""
    lost = await conversation.begin("first", lease=RUN_OUT)
    await conversation.tell(lost, "half a reply")
    begun = await conversation.begin("second")
    assert (await conversation.run(lost)).session_revision == 2
    assert begun.session.revision == 3


async def test_a_lost_run_tells_no_more_once_it_was_ended(conversation: Conversation) -> None:
    """What it would tell now was never part of its reply."""
    lost = await conversation.begin("first", lease=RUN_OUT)
    await conversation.tell(lost, "half a ")
    await conversation.begin("second")
    with pytest.raises(LeaseLost):
        await conversation.tell(lost, "half a ", "reply")


async def test_a_reply_is_kept_without_what_no_message_may_hold(conversation: Conversation) -> None:
    """The rest of it byte for byte."""
    lost = await conversation.begin("first", lease=RUN_OUT)
    await conversation.tell(lost, "a\0b \u200d", "\U0001f469")
    await conversation.begin("second")
    assert (await conversation.contents())[1] == "ab \u200d\U0001f469"


async def test_a_reply_of_nul_alone_is_none(conversation: Conversation) -> None:
    """There is nothing to keep."""
    lost = await conversation.begin("first", lease=RUN_OUT)
    await conversation.tell(lost, "\0")
    await conversation.begin("second")
    assert await conversation.contents() == ["first", "second"]
