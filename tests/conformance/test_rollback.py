"""A message may take back the turn that is in its way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.storage.errors import LeaseLost
from services.storage.models import ConflictPolicy, HitlState, PendingHitlPolicy, RunStatus
from services.storage.store.results import BegunRun
from tests.conformance.conversation import Conversation, question, said


@asynccontextmanager
async def _rolled_back(
    conversation: Conversation, old: BegunRun, *, policy: PendingHitlPolicy = PendingHitlPolicy.ANSWER
) -> AsyncIterator["asyncio.Task[BegunRun]"]:
    """While the message "instead" waits for the old run, which has been asked to stop."""
    beginning = asyncio.create_task(
        conversation.begin("instead", policy=policy, conflict_policy=ConflictPolicy.ROLLBACK, max_context_messages=10)
    )
    await conversation.until_asked_to_stop(old)
    yield beginning
    await beginning


async def test_an_idle_session_has_nothing_to_take_back(conversation: Conversation) -> None:
    """Turns that had ended before the message came stay."""
    await conversation.turn("first", said("reply"))
    await conversation.begin("second", conflict_policy=ConflictPolicy.ROLLBACK)
    assert await conversation.contents() == ["first", "reply", "second"]


async def test_the_old_turn_goes_and_those_before_it_stay(conversation: Conversation) -> None:
    """The message takes its place, without a gap; the context is of what is left."""
    await conversation.turn("first", said("reply"))
    old = await conversation.begin("second")
    async with _rolled_back(conversation, old) as beginning:
        await conversation.finish(old, said("half a rep"), status=RunStatus.CANCELLED)
    begun = await beginning
    assert [(message.position, message.content) for message in await conversation.messages()] == [
        (1, "first"),
        (2, "reply"),
        (3, "instead"),
    ]
    assert [message.content for message in begun.context] == ["first", "reply"]
    assert (begun.session.message_count, begun.run.human_position) == (3, 3)
    ended = await conversation.run(old)
    assert (ended.status, ended.human_position, ended.human_message_id) == (RunStatus.CANCELLED, 0, "")
    assert (ended.ai_position, ended.ai_message_id) == (0, "")


async def test_a_turn_whose_holder_does_not_stop_goes_as_well(conversation: Conversation) -> None:
    """With what its log had; its late reply is refused."""
    old = await conversation.begin("first")
    await conversation.tell(old, "half a rep")
    begun = await conversation.begin("instead", conflict_policy=ConflictPolicy.ROLLBACK)
    assert (await conversation.run(old)).status is RunStatus.CANCELLED
    assert await conversation.contents() == ["instead"]
    with pytest.raises(LeaseLost):
        await conversation.finish(old, said("too late"))
    assert begun.session.revision == (await conversation.finish(begun)).session.revision - 1


@pytest.mark.parametrize("policy", list(PendingHitlPolicy))
async def test_a_question_that_the_old_turn_opened_goes_with_it(
    conversation: Conversation, policy: PendingHitlPolicy
) -> None:
    """It is CANCELLED, whatever the policy."""
    old = await conversation.begin("first")
    async with _rolled_back(conversation, old, policy=policy) as beginning:
        finished = await conversation.finish(
            old, said("Which product?"), status=RunStatus.AWAITING_INPUT, opened_task=question()
        )
    assert (await beginning).claimed_task is None
    assert finished.opened_task is not None
    task = await conversation.store.get_hitl_task(conversation.user_id, finished.opened_task.task_id)
    assert task.state is HitlState.CANCELLED
    assert await conversation.contents() == ["instead"]


async def test_the_question_that_the_old_turn_answered_is_answered_anew(conversation: Conversation) -> None:
    """It was there before."""
    task = await conversation.ask_back()
    old = await conversation.begin("Harbor")
    async with _rolled_back(conversation, old) as beginning:
        await conversation.finish(old, status=RunStatus.CANCELLED)
    assert (await beginning).run.answered_task_id == task.task_id


async def test_a_turn_that_ended_well_after_all_goes_as_well(conversation: Conversation) -> None:
    """It was under way when the message came."""
    old = await conversation.begin("first")
    async with _rolled_back(conversation, old):
        await conversation.finish(old, said("reply"))
    assert await conversation.contents() == ["instead"]
