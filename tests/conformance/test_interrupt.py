"""A message may ask the run that is in its way to stop."""

import asyncio

import pytest

from services.storage.errors import HitlTaskNotPending, LeaseLost
from services.storage.models import ConflictPolicy, HitlState, MessageStatus, RunStatus
from services.storage.store.base import HOLDER_GRACE
from services.storage.store.results import BegunRun
from tests.conformance.conversation import RUN_OUT, Conversation, question, said


def _interrupt(
    conversation: Conversation, message: str, *, answers_task_id: str = "", request_id: str = ""
) -> asyncio.Task[BegunRun]:
    return asyncio.create_task(
        conversation.begin(
            message,
            answers_task_id=answers_task_id,
            request_id=request_id,
            request_hash=request_id.encode(),
            conflict_policy=ConflictPolicy.INTERRUPT,
        )
    )


async def test_an_idle_session_has_nobody_to_interrupt(conversation: Conversation) -> None:
    """The message begins at once, and what was said before stays."""
    await conversation.turn("first", said("reply"))
    assert (await _interrupt(conversation, "second")).run.status is RunStatus.RUNNING
    assert await conversation.contents() == ["first", "reply", "second"]


async def test_a_holder_that_is_asked_to_stop_ends_its_run_itself(conversation: Conversation) -> None:
    """It is told as it renews its lease or tells of its progress; what it has said by then stays."""
    old = await conversation.begin("first")
    interrupting = _interrupt(conversation, "second")
    await conversation.until_asked_to_stop(old)
    renewed = await conversation.store.renew_run(conversation.user_id, old.run.run_id, fencing_token=old.fencing_token)
    assert renewed.cancel_requested and (await conversation.tell(old, "rep")).cancel_requested
    await conversation.finish(old, said("rep"), status=RunStatus.CANCELLED)
    begun = await interrupting
    assert (begun.run.status, begun.is_holder) == (RunStatus.RUNNING, True)
    assert await conversation.contents() == ["first", "rep", "second"]
    ended = await conversation.run(old)
    assert (ended.status, ended.error) == (RunStatus.CANCELLED, None)


async def test_a_holder_that_does_not_stop_is_replaced(conversation: Conversation) -> None:
    """Its run ends CANCELLED, with what its log has of the reply as STOPPED; its late writes are refused."""
    old = await conversation.begin("first")
    await conversation.tell(old, "half a ", "reply")
    begun = await _interrupt(conversation, "second")
    ended = await conversation.run(old)
    assert ended.status is RunStatus.CANCELLED and ended.finish_time is not None
    assert ended.error is not None and (ended.error.code, ended.error.reason) == (10, "RUN_REPLACED")
    _, reply, _ = await conversation.messages()
    assert (reply.content, reply.status) == ("half a reply", MessageStatus.STOPPED)
    assert (reply.position, reply.message_id, reply.run_id) == (2, ended.ai_message_id, old.run.run_id)
    assert (ended.ai_position, begun.run.human_position) == (2, 3)
    with pytest.raises(LeaseLost):
        await conversation.finish(old, said("too late"))
    with pytest.raises(LeaseLost):
        await conversation.tell(old, "half a ", "reply", "too late")


async def test_an_interruption_goes_before_those_that_wait(conversation: Conversation) -> None:
    """They wait on."""
    old = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("third"))
    await conversation.until_waiting()
    interrupting = _interrupt(conversation, "second")
    await conversation.until_asked_to_stop(old)
    await conversation.finish(old, status=RunStatus.CANCELLED)
    begun = await interrupting
    [queued] = await conversation.runs(RunStatus.QUEUED)
    await conversation.finish(begun)
    assert (await waiting).run.run_id == queued.run_id
    assert await conversation.contents() == ["first", "second", "third"]


async def test_the_run_of_an_interruption_may_be_ended_by_its_holder_as_well(conversation: Conversation) -> None:
    """Though the next one has waited for longer than a holder is given."""
    await conversation.begin("first")
    second = _interrupt(conversation, "second")
    await conversation.until_waiting()
    third = _interrupt(conversation, "third")
    await conversation.until_waiting(2)
    begun = await second
    await conversation.until_asked_to_stop(begun)
    done, _ = await asyncio.wait([third], timeout=HOLDER_GRACE.total_seconds() / 2)
    assert not done
    finished = await conversation.finish(begun, said("rep"), status=RunStatus.CANCELLED)
    assert finished.run.error is None
    assert (await third).run.status is RunStatus.RUNNING
    assert await conversation.contents() == ["first", "second", "rep", "third"]


async def test_of_several_interruptions_at_once_the_last_wins(conversation: Conversation) -> None:
    """Each message is kept, and all but one of the runs are replaced."""
    await conversation.begin("first")
    interrupting = []
    for n in range(3):
        interrupting.append(_interrupt(conversation, f"{n}"))
        await conversation.until_waiting(n + 1)
    begun = [await each for each in interrupting]
    ended = [await conversation.run(each) for each in begun]
    assert [run.status for run in ended] == [RunStatus.CANCELLED] * 2 + [RunStatus.RUNNING]
    assert {run.error.reason for run in ended if run.error} == {"RUN_REPLACED"}
    assert await conversation.contents() == ["first", "0", "1", "2"]


async def test_one_interruption_from_many_sides_begins_one_run(conversation: Conversation) -> None:
    """The others find it."""
    old = await conversation.begin("first")
    interrupting = [_interrupt(conversation, "second", request_id="r") for _ in range(4)]
    await conversation.until_asked_to_stop(old)
    await conversation.finish(old, status=RunStatus.CANCELLED)
    begun = [await each for each in interrupting]
    assert len({each.run.run_id for each in begun}) == 1
    assert sorted(each.already_begun for each in begun) == [False] + [True] * 3
    assert await conversation.contents() == ["first", "second"]


async def test_the_question_of_an_interrupted_run_is_answered_anew(conversation: Conversation) -> None:
    """By the message that interrupts it."""
    task = await conversation.ask_back()
    old = await conversation.begin("Harbor")
    interrupting = _interrupt(conversation, "Lighthouse, I mean")
    await conversation.until_asked_to_stop(old)
    await conversation.finish(old, status=RunStatus.CANCELLED)
    assert (await interrupting).run.answered_task_id == task.task_id


async def test_an_answer_by_name_may_interrupt_the_one_before(conversation: Conversation) -> None:
    """Though its question is claimed when it comes."""
    task = await conversation.ask_back()
    old = await conversation.begin("Harbor", answers_task_id=task.task_id)
    interrupting = _interrupt(conversation, "Lighthouse, I mean", answers_task_id=task.task_id)
    await conversation.until_asked_to_stop(old)
    await conversation.finish(old, status=RunStatus.CANCELLED)
    assert (await interrupting).run.answered_task_id == task.task_id


async def test_an_answer_by_name_comes_too_late_where_the_one_before_was_taken(conversation: Conversation) -> None:
    """The holder that was asked to stop had answered already."""
    task = await conversation.ask_back()
    old = await conversation.begin("Harbor")
    interrupting = _interrupt(conversation, "Lighthouse, I mean", answers_task_id=task.task_id)
    await conversation.until_asked_to_stop(old)
    finished = await conversation.finish(old, said("Thirty days."))
    assert finished.run.status is RunStatus.COMPLETED
    with pytest.raises(HitlTaskNotPending):
        await interrupting
    assert await conversation.runs(RunStatus.QUEUED) == []


async def test_a_question_that_the_old_run_still_opened_is_withdrawn(conversation: Conversation) -> None:
    """The author of the message never saw it."""
    old = await conversation.begin("first")
    interrupting = _interrupt(conversation, "second")
    await conversation.until_asked_to_stop(old)
    finished = await conversation.finish(
        old, said("Which product?"), status=RunStatus.AWAITING_INPUT, opened_task=question()
    )
    assert (await interrupting).claimed_task is None
    assert finished.opened_task is not None
    task = await conversation.store.get_hitl_task(conversation.user_id, finished.opened_task.task_id)
    assert task.state is HitlState.CANCELLED


async def test_a_dead_run_is_ended_as_dead(conversation: Conversation) -> None:
    """There is nobody to be asked."""
    old = await conversation.begin("first", lease=RUN_OUT)
    await _interrupt(conversation, "second")
    ended = await conversation.run(old)
    assert ended.status is RunStatus.FAILED
    assert ended.error is not None and ended.error.reason == "HOLDER_LOST"


async def test_an_interruption_that_is_cancelled_stores_nothing(conversation: Conversation) -> None:
    """Whoever waits for it is told how it ended."""
    old = await conversation.begin("first")
    interrupting = _interrupt(conversation, "second")
    [queued] = await conversation.until_waiting()
    cancelled = await conversation.store.cancel_run(conversation.user_id, queued.run_id)
    assert (await interrupting).run == cancelled
    await conversation.finish(old, status=RunStatus.CANCELLED)
    assert await conversation.contents() == ["first"]


async def test_an_interruption_that_is_cut_off_is_in_nobodys_way(conversation: Conversation) -> None:
    """It has no place that would be kept."""
    await conversation.begin("first")
    interrupting = _interrupt(conversation, "second")
    await conversation.until_waiting()
    interrupting.cancel()
    await asyncio.wait([interrupting])
    assert await conversation.runs(RunStatus.QUEUED) == []
