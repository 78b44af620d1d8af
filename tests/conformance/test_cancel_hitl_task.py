"""A question may be withdrawn while it waits."""

import asyncio

import pytest

from services.storage.errors import HitlTaskNotFound, HitlTaskNotPending, RequestIdReused, SessionDeleted
from services.storage.models import HitlState, HitlTask, RunStatus
from tests.conformance.conversation import RUN_OUT, Conversation, new_name, question, said


async def _withdraw(conversation: Conversation, task: HitlTask, *, request_id: str = "") -> HitlTask:
    return await conversation.store.cancel_hitl_task(
        conversation.user_id, task.task_id, request_id=request_id, request_hash=request_id.encode()
    )


async def test_a_withdrawn_question_is_in_nobodys_way(conversation: Conversation) -> None:
    """It is CANCELLED, and the next message a new one; the session has changed by it."""
    task = await conversation.ask_back()
    before = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    withdrawn = await _withdraw(conversation, task)
    assert withdrawn.state is HitlState.CANCELLED and withdrawn.resolve_time is not None
    assert await conversation.store.get_hitl_task(conversation.user_id, task.task_id) == withdrawn
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert (session.pending_hitl_task_id, session.revision) == ("", before.revision + 1)
    assert session.update_time > before.update_time
    assert (await conversation.begin("Harbor")).claimed_task is None


async def test_a_withdrawal_shows_in_the_users_list(conversation: Conversation) -> None:
    """The list is another than before."""
    task = await conversation.ask_back()
    before = await conversation.store.user_version(conversation.user_id)
    await _withdraw(conversation, task)
    assert (await conversation.store.user_version(conversation.user_id)).revision != before.revision


async def test_only_a_question_that_waits_is_withdrawn(conversation: Conversation) -> None:
    """One that is claimed, answered, withdrawn or expired is told as that."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor")
    states = []
    with pytest.raises(HitlTaskNotPending) as refusal:
        await _withdraw(conversation, task)
    states.append(refusal.value.metadata["state"])
    await conversation.finish(begun, said("Thirty days."))
    expired = await conversation.ask_back(question(expire_after=RUN_OUT))
    withdrawn = await conversation.ask_back()
    await _withdraw(conversation, withdrawn)
    for each in (task, expired, withdrawn):
        with pytest.raises(HitlTaskNotPending) as refusal:
            await _withdraw(conversation, each)
        states.append(refusal.value.metadata["state"])
    assert states == ["CLAIMED", "ANSWERED", "EXPIRED", "CANCELLED"]


async def test_a_question_that_a_dead_run_had_claimed_is_withdrawn(conversation: Conversation) -> None:
    """The run is ended first."""
    task = await conversation.ask_back()
    lost = await conversation.begin("Harbor", lease=RUN_OUT)
    assert (await _withdraw(conversation, task)).state is HitlState.CANCELLED
    assert (await conversation.run(lost)).status is RunStatus.FAILED


async def test_a_question_is_answered_or_withdrawn_but_not_both(conversation: Conversation) -> None:
    """Whichever comes first."""
    for _ in range(10):
        task = await conversation.ask_back()
        begun, withdrawn = await asyncio.gather(
            conversation.begin("Harbor", answers_task_id=task.task_id),
            _withdraw(conversation, task),
            return_exceptions=True,
        )
        if isinstance(begun, BaseException):
            assert isinstance(begun, HitlTaskNotPending) and isinstance(withdrawn, HitlTask)
        else:
            assert isinstance(withdrawn, HitlTaskNotPending)
            await conversation.finish(begun)


async def test_a_repeated_withdrawal_finds_the_first(conversation: Conversation) -> None:
    """It changes nothing."""
    task = await conversation.ask_back()
    first = await _withdraw(conversation, task, request_id="r")
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert await _withdraw(conversation, task, request_id="r") == first
    assert await conversation.store.get_session(conversation.user_id, conversation.session_id) == session


async def test_another_withdrawal_under_the_same_request_id_is_refused(conversation: Conversation) -> None:
    """And withdraws nothing."""
    await _withdraw(conversation, await conversation.ask_back(), request_id="r")
    other = await conversation.ask_back()
    with pytest.raises(RequestIdReused):
        await conversation.store.cancel_hitl_task(
            conversation.user_id, other.task_id, request_id="r", request_hash=b"another"
        )
    task = await conversation.store.get_hitl_task(conversation.user_id, other.task_id)
    assert task.state is HitlState.PENDING


async def test_a_refused_withdrawal_may_be_made_again(conversation: Conversation) -> None:
    """It left no record."""
    task = await conversation.ask_back()
    begun = await conversation.begin("Harbor")
    with pytest.raises(HitlTaskNotPending):
        await _withdraw(conversation, task, request_id="r")
    await conversation.finish(begun, status=RunStatus.FAILED)
    assert (await _withdraw(conversation, task, request_id="r")).state is HitlState.CANCELLED


async def test_a_late_repeat_is_told_that_the_session_was_deleted(conversation: Conversation) -> None:
    """The withdrawal had taken effect."""
    task = await conversation.ask_back()
    await _withdraw(conversation, task, request_id="r")
    await conversation.store.delete_session(conversation.user_id, conversation.session_id)
    with pytest.raises(SessionDeleted):
        await _withdraw(conversation, task, request_id="r")
    with pytest.raises(HitlTaskNotFound):
        await _withdraw(conversation, task)


async def test_another_users_question_is_not_found(conversation: Conversation) -> None:
    """As one that nobody was asked; it waits on."""
    task = await conversation.ask_back()
    for user_id, task_id in ((new_name(), task.task_id), (conversation.user_id, "nobody's")):
        with pytest.raises(HitlTaskNotFound) as refusal:
            await conversation.store.cancel_hitl_task(user_id, task_id, request_id="r")
        assert refusal.value.metadata == {"task_id": task_id}
    assert await conversation.store.get_hitl_task(conversation.user_id, task.task_id) == task
