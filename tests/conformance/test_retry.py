"""The last turn's message may be answered anew, where that turn failed or was stopped."""

import asyncio
from typing import Any

import pytest

from services.storage.errors import RunInProgress, RunNotFound, RunNotRetryable
from services.storage.models import ConflictPolicy, HitlState, RunStatus
from services.storage.store.results import BegunRun
from tests.conformance.conversation import RUN_OUT, Conversation, new_name, said


async def _retry(conversation: Conversation, old: BegunRun, **options: Any) -> BegunRun:
    return await conversation.begin("", retries_run_id=old.run.run_id, **options)


async def _failed(conversation: Conversation, message: str = "Hello", reply: str = "Hel") -> BegunRun:
    begun = await conversation.begin(message)
    await conversation.finish(begun, said(reply) if reply else None, status=RunStatus.FAILED)
    return begun


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED])
async def test_a_turn_that_ended_badly_is_begun_anew(conversation: Conversation, status: RunStatus) -> None:
    """Its message stays as it is, but is the new run's; what had been said to it is taken back."""
    await conversation.turn("first", said("reply"))
    old = await conversation.begin("second")
    await conversation.finish(old, said("half a rep"), status=status)
    before = await conversation.messages()
    begun = await _retry(conversation, old, max_context_messages=10)
    assert (begun.is_holder, begun.already_begun, begun.run.status) == (True, False, RunStatus.RUNNING)
    assert await conversation.contents() == ["first", "reply", "second"]
    message = (await conversation.messages())[-1]
    assert message == begun.human_message
    assert (message.message_id, message.create_time) == (before[2].message_id, before[2].create_time)
    assert (message.run_id, begun.run.human_message_id) == (begun.run.run_id, message.message_id)
    assert (begun.run.human_position, begun.session.message_count) == (3, 3)
    assert [message.content for message in begun.context] == ["first", "reply"]
    ended = await conversation.run(old)
    assert (ended.status, ended.ai_position, ended.ai_message_id) == (status, 0, "")


async def test_a_retried_turn_goes_on_as_any_other(conversation: Conversation) -> None:
    """Its reply follows its message, and the next turn that."""
    old = await _failed(conversation, "first")
    await conversation.finish(await _retry(conversation, old), said("reply"))
    await conversation.turn("second", said("another"))
    assert await conversation.contents() == ["first", "reply", "second", "another"]


async def test_a_retry_that_fails_may_be_retried(conversation: Conversation) -> None:
    """By the run that failed last, and no other."""
    first = await _failed(conversation)
    second = await _retry(conversation, first)
    await conversation.finish(second, status=RunStatus.FAILED)
    with pytest.raises(RunNotRetryable):
        await _retry(conversation, first)
    third = await _retry(conversation, second)
    assert third.human_message is not None and third.human_message.content == "Hello"


async def test_a_turn_whose_holder_died_may_be_retried(conversation: Conversation) -> None:
    """At once, where its lease has run out."""
    old = await conversation.begin("first", lease=RUN_OUT)
    await conversation.tell(old, "half a rep")
    begun = await _retry(conversation, old)
    assert begun.run.status is RunStatus.RUNNING
    assert await conversation.contents() == ["first"]


async def test_the_question_that_the_turn_answered_is_claimed_again(conversation: Conversation) -> None:
    """It was PENDING again."""
    task = await conversation.ask_back()
    old = await _failed(conversation, "Harbor")
    begun = await _retry(conversation, old)
    assert begun.claimed_task is not None and begun.run.answered_task_id == task.task_id
    await conversation.finish(begun, said("Thirty days."))
    answered = await conversation.store.get_hitl_task(conversation.user_id, task.task_id)
    assert (answered.state, answered.answer) == (HitlState.ANSWERED, "Harbor")
    assert answered.answered_by_run_id == begun.run.run_id


async def test_a_retried_answer_is_a_message_like_any_other_once_its_question_is_withdrawn(
    conversation: Conversation,
) -> None:
    """The turn is retried all the same."""
    task = await conversation.ask_back()
    old = await _failed(conversation, "Harbor")
    await conversation.store.cancel_hitl_task(conversation.user_id, task.task_id)
    begun = await _retry(conversation, old)
    assert (begun.claimed_task, begun.run.answered_task_id) == (None, "")


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.RUNNING])
async def test_a_turn_that_did_not_end_badly_is_not_retried(conversation: Conversation, status: RunStatus) -> None:
    """It keeps all that it has; one under way is in the way."""
    old = await conversation.begin("first")
    if status is RunStatus.COMPLETED:
        await conversation.finish(old, said("reply"))
        with pytest.raises(RunNotRetryable) as refusal:
            await _retry(conversation, old)
        assert refusal.value.metadata == {"run_id": old.run.run_id, "status": "COMPLETED"}
        assert await conversation.contents() == ["first", "reply"]
    else:
        with pytest.raises(RunInProgress):
            await _retry(conversation, old)


async def test_only_the_last_turn_is_retried(conversation: Conversation) -> None:
    """Another that came after it would be lost."""
    old = await _failed(conversation)
    await conversation.turn("second")
    with pytest.raises(RunNotRetryable) as refusal:
        await _retry(conversation, old)
    assert refusal.value.metadata == {"run_id": old.run.run_id, "status": "FAILED"}


async def test_only_a_run_of_the_session_is_retried(conversation: Conversation) -> None:
    """Another session's, another user's or nobody's is not found, and no session is made."""
    old = await _failed(conversation)
    stranger = Conversation(conversation.store, user_id=new_name(), session_id=conversation.session_id)
    for each in (conversation.another(), stranger):
        with pytest.raises(RunNotFound):
            await _retry(each, old)
    with pytest.raises(RunNotFound):
        await conversation.begin("", retries_run_id="nobody's")


async def test_a_repeated_retry_finds_the_run(conversation: Conversation) -> None:
    """It takes nothing back again; its holder gets the message once more."""
    old = await _failed(conversation)
    request: dict[str, Any] = {"request_id": "r", "request_hash": b"1", "holder_id": "h"}
    begun = await _retry(conversation, old, **request)
    again = await _retry(conversation, old, **request)
    assert again.already_begun and again.is_holder
    assert (again.run, again.human_message) == (begun.run, begun.human_message)
    await conversation.finish(begun, said("reply"))
    assert (await _retry(conversation, old, **request)).run.status is RunStatus.COMPLETED
    assert await conversation.contents() == ["Hello", "reply"]


async def test_of_many_retries_at_once_one_begins(conversation: Conversation) -> None:
    """The others find it under way."""
    old = await _failed(conversation)
    outcomes = await asyncio.gather(*(_retry(conversation, old) for _ in range(10)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BegunRun"] + ["RunInProgress"] * 9
    assert await conversation.contents() == ["Hello"]


async def test_the_run_under_way_may_be_interrupted_to_be_retried(conversation: Conversation) -> None:
    """Its own message is answered anew."""
    old = await conversation.begin("first")
    await conversation.tell(old, "half a rep")
    begun = await _retry(conversation, old, conflict_policy=ConflictPolicy.INTERRUPT)
    assert begun.human_message is not None and begun.human_message.content == "first"
    assert await conversation.contents() == ["first"]


async def test_a_turn_that_is_no_longer_the_last_is_not_waited_for(conversation: Conversation) -> None:
    """Waiting would not make it the last again."""
    old = await _failed(conversation)
    await conversation.begin("second")
    for policy in (ConflictPolicy.ENQUEUE, ConflictPolicy.INTERRUPT, ConflictPolicy.ROLLBACK):
        with pytest.raises(RunNotRetryable):
            await _retry(conversation, old, request_id=policy.name, conflict_policy=policy)
    assert await conversation.runs(RunStatus.QUEUED) == []


async def test_a_retry_may_wait_for_the_run_that_it_retries(conversation: Conversation) -> None:
    """Once that has failed its turn has come; had it ended well there would be nothing to retry."""
    for status in (RunStatus.FAILED, RunStatus.COMPLETED):
        old = await conversation.begin("first")
        waiting = asyncio.create_task(
            _retry(conversation, old, request_id=new_name(), conflict_policy=ConflictPolicy.ENQUEUE)
        )
        await conversation.until_waiting()
        await conversation.finish(old, status=status)
        if status is RunStatus.FAILED:
            begun = await waiting
            assert begun.human_message is not None and begun.human_message.content == "first"
            await conversation.finish(begun)
        else:
            with pytest.raises(RunNotRetryable):
                await waiting


async def test_a_turn_that_never_had_its_turn_is_not_retried(conversation: Conversation) -> None:
    """Nothing of its message was stored."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    [queued] = await conversation.until_waiting()
    await conversation.store.cancel_run(conversation.user_id, queued.run_id)
    cancelled = await waiting
    await conversation.finish(busy)
    with pytest.raises(RunNotRetryable):
        await _retry(conversation, cancelled)
