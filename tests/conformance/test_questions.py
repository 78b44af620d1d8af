"""A question to the user is asked once, and answered once."""

import asyncio
from datetime import timedelta

import pytest

from services.storage.errors import HitlTaskNotFound, HitlTaskNotPending, HitlTaskPending
from services.storage.models import HitlState, HitlTask, PendingHitlPolicy, RunStatus
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import RUN_OUT, Conversation, question, said


async def _task(conversation: Conversation, task: HitlTask) -> HitlTask:
    return await conversation.store.get_hitl_task(conversation.user_id, task.task_id)


async def _pending(conversation: Conversation) -> str:
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    return session.pending_hitl_task_id


async def test_an_opened_question_waits_for_the_user(conversation: Conversation) -> None:
    """It holds what the run put, and is the session's pending one."""
    draft = question(answers=("earlier",), resume_state=b"\x00\xff", expire_after=timedelta(hours=1))
    task = await conversation.ask_back(draft)
    assert task.state is HitlState.PENDING
    assert (task.original_question, task.prompt, task.options) == (draft.original_question, draft.prompt, draft.options)
    assert (task.kind, task.answers, task.resume_state) == (draft.kind, ("earlier",), b"\x00\xff")
    assert task.expire_time - task.create_time == timedelta(hours=1)
    assert (task.resolve_time, task.answer, task.answered_by_run_id) == (None, "", "")
    assert await _task(conversation, task) == task
    assert await _pending(conversation) == task.task_id


async def test_an_answer_by_name_claims_its_question(conversation: Conversation) -> None:
    """The run gets it with its resume state, and the session has no pending one."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor", answers_task_id=task.task_id)
    assert begun.claimed_task is not None
    assert (begun.claimed_task.state, begun.claimed_task.resume_state) == (HitlState.CLAIMED, task.resume_state)
    assert begun.run.answered_task_id == task.task_id
    assert await _task(conversation, task) == begun.claimed_task
    assert await _pending(conversation) == ""


async def test_the_next_message_answers_the_question_unless_told_otherwise(conversation: Conversation) -> None:
    """That is the policy ANSWER."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor", policy=PendingHitlPolicy.ANSWER)
    assert begun.run.answered_task_id == task.task_id


async def test_replace_withdraws_the_question(conversation: Conversation) -> None:
    """The message is a new one, and the question CANCELLED."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Something else", policy=PendingHitlPolicy.REPLACE)
    assert (begun.claimed_task, begun.run.answered_task_id) == (None, "")
    withdrawn = await _task(conversation, task)
    assert withdrawn.state is HitlState.CANCELLED and withdrawn.resolve_time is not None
    assert await _pending(conversation) == ""


async def test_reject_refuses_a_message_while_a_question_waits(conversation: Conversation) -> None:
    """The question is named, and stays; nothing is stored."""
    task = await conversation.ask_back()
    with pytest.raises(HitlTaskPending) as refusal:
        await conversation.begin("Something else", policy=PendingHitlPolicy.REJECT)
    assert refusal.value.metadata == {"task_id": task.task_id}
    assert await _pending(conversation) == task.task_id
    assert "Something else" not in await conversation.contents()


@pytest.mark.parametrize("policy", list(PendingHitlPolicy))
async def test_a_named_question_is_answered_whatever_the_policy(
    conversation: Conversation, policy: PendingHitlPolicy
) -> None:
    """A policy is for messages that name none."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor", answers_task_id=task.task_id, policy=policy)
    assert begun.run.answered_task_id == task.task_id


async def test_of_many_answers_at_once_one_is_taken(conversation: Conversation) -> None:
    """The others are told that the question is claimed."""
    task = await conversation.ask_back()
    outcomes = await asyncio.gather(
        *(conversation.begin(f"answer {n}", answers_task_id=task.task_id) for n in range(20)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, HitlTaskNotPending)]
    assert len(refused) == 19
    assert {str(refusal.metadata) for refusal in refused} == {str({"task_id": task.task_id, "state": "CLAIMED"})}
    assert len([content for content in await conversation.contents() if content.startswith("answer")]) == 1


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.AWAITING_INPUT])
async def test_a_run_that_ends_well_has_answered_its_question(conversation: Conversation, status: RunStatus) -> None:
    """By the words that began it."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor, please")
    opened = question("Which plan?") if status is RunStatus.AWAITING_INPUT else None
    await conversation.finish(begun, said("Thirty days."), status=status, opened_task=opened)
    answered = await _task(conversation, task)
    assert answered.state is HitlState.ANSWERED and answered.resolve_time is not None
    assert (answered.answer, answered.answered_by_run_id) == ("Harbor, please", begun.run.run_id)


@pytest.mark.parametrize("status", [RunStatus.CANCELLED, RunStatus.FAILED])
async def test_a_run_that_ends_badly_leaves_its_question_pending(conversation: Conversation, status: RunStatus) -> None:
    """As it was before: the next message answers it."""
    task = await conversation.ask_back()
    finished = await conversation.finish(await conversation.begin("Harbor"), said("Thir"), status=status)
    assert await _task(conversation, task) == task
    assert finished.session.pending_hitl_task_id == task.task_id
    assert (await conversation.begin("Harbor")).run.answered_task_id == task.task_id


async def test_asking_back_again_waits_for_the_new_question_alone(conversation: Conversation) -> None:
    """Round by round, one question waits."""
    await conversation.ask_back()
    second = await conversation.ask_back(question("Which plan?", answers=("Harbor",)))
    assert await _pending(conversation) == second.task_id
    page = await conversation.store.list_hitl_tasks(
        conversation.user_id, state=HitlState.PENDING, page_size=10, after=None, max_bytes=10_000
    )
    assert [task.task_id for task in page.tasks] == [second.task_id]


async def test_an_answered_question_takes_no_other_answer(conversation: Conversation) -> None:
    """Its state is told."""
    task = await conversation.ask_back()
    await conversation.turn("Harbor")
    with pytest.raises(HitlTaskNotPending) as refusal:
        await conversation.begin("Lighthouse", answers_task_id=task.task_id)
    assert refusal.value.metadata == {"task_id": task.task_id, "state": "ANSWERED"}


async def test_a_withdrawn_question_takes_no_answer(conversation: Conversation) -> None:
    """Its state is told."""
    task = await conversation.ask_back()
    await conversation.finish(await conversation.begin(policy=PendingHitlPolicy.REPLACE))
    with pytest.raises(HitlTaskNotPending) as refusal:
        await conversation.begin("Harbor", answers_task_id=task.task_id)
    assert refusal.value.metadata["state"] == "CANCELLED"


async def test_an_expired_question_takes_no_answer(conversation: Conversation) -> None:
    """Its state is told."""
    task = await conversation.ask_back(question(expire_after=RUN_OUT))
    with pytest.raises(HitlTaskNotPending) as refusal:
        await conversation.begin("Harbor", answers_task_id=task.task_id)
    assert refusal.value.metadata["state"] == "EXPIRED"


@pytest.mark.parametrize("policy", list(PendingHitlPolicy))
async def test_an_expired_question_is_in_no_messages_way(conversation: Conversation, policy: PendingHitlPolicy) -> None:
    """The message is a new question, whatever the policy."""
    task = await conversation.ask_back(question(expire_after=RUN_OUT))
    begun = await conversation.begin("Something else", policy=policy)
    assert begun.claimed_task is None
    assert (await _task(conversation, task)).state is HitlState.EXPIRED


async def test_a_question_is_seen_as_expired_from_its_time_on(conversation: Conversation) -> None:
    """Read alone, in lists, and in its session, though nobody has touched it."""
    expired = await conversation.ask_back(question(expire_after=RUN_OUT))
    task = await _task(conversation, expired)
    assert (task.state, task.resolve_time) == (HitlState.EXPIRED, task.expire_time)
    assert await _pending(conversation) == ""
    for state, expected in ((HitlState.EXPIRED, [task]), (HitlState.PENDING, [])):
        page = await conversation.store.list_hitl_tasks(
            conversation.user_id, state=state, page_size=10, after=None, max_bytes=10_000
        )
        assert list(page.tasks) == expected


async def test_a_question_that_expires_while_claimed_is_answered_all_the_same(
    conversation: Conversation, ageing: Ageing
) -> None:
    """It was in time when the answer came."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor")
    await ageing.expire_question(conversation.user_id, task.task_id)
    await conversation.finish(begun, said("Thirty days."))
    assert (await _task(conversation, task)).state is HitlState.ANSWERED


async def test_a_question_that_expired_while_claimed_is_not_pending_again(
    conversation: Conversation, ageing: Ageing
) -> None:
    """A run that fails with it leaves it EXPIRED."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor")
    await ageing.expire_question(conversation.user_id, task.task_id)
    finished = await conversation.finish(begun, status=RunStatus.FAILED)
    assert (await _task(conversation, task)).state is HitlState.EXPIRED
    assert finished.session.pending_hitl_task_id == ""


async def test_an_unknown_question_is_not_found(conversation: Conversation) -> None:
    """Neither to be answered nor to be read."""
    with pytest.raises(HitlTaskNotFound) as refusal:
        await conversation.begin(answers_task_id="nobody's")
    assert refusal.value.metadata == {"task_id": "nobody's"}
    with pytest.raises(HitlTaskNotFound):
        await conversation.store.get_hitl_task(conversation.user_id, "nobody's")


async def test_a_question_is_answered_in_its_own_session_alone(conversation: Conversation) -> None:
    """In another of the same user it is not found, and stays."""
    task = await conversation.ask_back()
    with pytest.raises(HitlTaskNotFound):
        await conversation.another().begin("Harbor", answers_task_id=task.task_id)
    assert await _pending(conversation) == task.task_id
