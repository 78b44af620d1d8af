"""A message that finds its session busy may wait for its turn."""

import asyncio

import pytest

from services.runtime.errors import InvalidField
from services.storage.errors import (
    HitlTaskNotPending,
    HitlTaskPending,
    RequestIdReused,
    RunInProgress,
    RunNotFound,
    SessionDeleted,
    SessionNotFound,
)
from services.storage.models import ConflictPolicy, HitlState, PendingHitlPolicy, RunStatus
from services.storage.store.base import ConversationStorage
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import NO_PATIENCE, RUN_OUT, Conversation, question, said


async def test_a_message_to_an_idle_session_waits_for_nobody(conversation: Conversation) -> None:
    """It begins at once, in a session that it makes if it must."""
    begun = await conversation.enqueue("first", patience=NO_PATIENCE)
    assert (begun.run.status, begun.is_holder, begun.queued_ahead) == (RunStatus.RUNNING, True, 0)
    assert await conversation.contents() == ["first"]


async def test_nothing_is_stored_of_a_message_that_waits_but_its_run(conversation: Conversation) -> None:
    """The run is QUEUED, and told how many are before it; the session is as it was."""
    busy = await conversation.begin("first")
    queued = await conversation.enqueue("second", patience=NO_PATIENCE)
    assert (queued.run.status, queued.queued_ahead) == (RunStatus.QUEUED, 1)
    assert (queued.is_holder, queued.already_begun, queued.fencing_token) == (False, False, 0)
    assert (queued.run.human_position, queued.run.human_message_id) == (0, "")
    assert queued.session == busy.session
    assert await conversation.run(queued) == queued.run
    assert await conversation.contents() == ["first"]


async def test_a_turn_comes_when_the_run_before_has_ended(conversation: Conversation) -> None:
    """The message follows its reply; the run is the one that was QUEUED, held by whoever waited."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    [queued] = await conversation.until_waiting()
    await conversation.finish(busy, said("reply"))
    begun = await waiting
    assert (begun.run.run_id, begun.run.create_time) == (queued.run_id, queued.create_time)
    assert (begun.run.status, begun.is_holder, begun.already_begun) == (RunStatus.RUNNING, True, False)
    assert begun.fencing_token > busy.fencing_token
    assert await conversation.run(begun) == begun.run
    assert await conversation.contents() == ["first", "reply", "second"]
    assert await conversation.runs(RunStatus.QUEUED) == []


async def test_turns_come_in_order_of_arrival(conversation: Conversation) -> None:
    """However many wait, one has the session at a time."""
    running = await conversation.begin("0")
    waiting = []
    for n in range(1, 5):
        waiting.append(asyncio.create_task(conversation.enqueue(f"{n}")))
        await conversation.until_waiting(n)
    for turn in waiting:
        await conversation.finish(running)
        running = await turn
    assert await conversation.contents() == ["0", "1", "2", "3", "4"]


async def test_the_same_request_again_keeps_its_place(conversation: Conversation) -> None:
    """It is told how far it has come."""
    busy = await conversation.begin("first")
    second, third = [await conversation.enqueue(name, patience=NO_PATIENCE) for name in ("second", "third")]
    assert (second.queued_ahead, third.queued_ahead) == (1, 2)
    await conversation.finish(busy)
    begun = await conversation.enqueue("second", patience=NO_PATIENCE)
    assert (begun.run.status, begun.run.run_id) == (RunStatus.RUNNING, second.run.run_id)
    again = await conversation.enqueue("third", patience=NO_PATIENCE)
    assert (again.run.run_id, again.queued_ahead) == (third.run.run_id, 1)


async def test_one_that_comes_later_has_no_turn_before_one_that_waits(conversation: Conversation) -> None:
    """Not even where the session is idle by then."""
    busy = await conversation.begin("first")
    await conversation.enqueue("second", patience=NO_PATIENCE)
    await conversation.finish(busy)
    assert (await conversation.enqueue("third", patience=NO_PATIENCE)).queued_ahead == 1


async def test_a_message_that_would_not_wait_is_refused_while_others_do(conversation: Conversation) -> None:
    """It is told whose turn comes next."""
    busy = await conversation.begin("first")
    queued = await conversation.enqueue("second", patience=NO_PATIENCE)
    await conversation.enqueue("third", patience=NO_PATIENCE)
    await conversation.finish(busy)
    with pytest.raises(RunInProgress) as refusal:
        await conversation.begin("fourth")
    assert refusal.value.metadata == {"active_run_id": queued.run.run_id}


async def test_one_request_at_once_from_many_sides_has_one_place(conversation: Conversation) -> None:
    """One of them begins the run when its turn comes, and the others find it."""
    busy = await conversation.begin("first")
    waiting = [asyncio.create_task(conversation.enqueue("second")) for _ in range(5)]
    [queued] = await conversation.until_waiting()
    await conversation.finish(busy)
    begun = await asyncio.gather(*waiting)
    assert {each.run.run_id for each in begun} == {queued.run_id}
    assert sorted(each.already_begun for each in begun) == [False] + [True] * 4
    assert await conversation.contents() == ["first", "second"]


async def test_a_repeat_after_its_turn_finds_the_run(conversation: Conversation) -> None:
    """As with any other."""
    busy = await conversation.begin("first")
    queued = await conversation.enqueue("second", patience=NO_PATIENCE)
    await conversation.finish(busy)
    await conversation.finish(await conversation.enqueue("second"))
    again = await conversation.enqueue("second")
    assert (again.already_begun, again.run.run_id) == (True, queued.run.run_id)
    assert again.run.status is RunStatus.COMPLETED


async def test_another_body_under_the_id_of_one_that_waits_is_refused(conversation: Conversation) -> None:
    """In that session or another."""
    await conversation.begin("first")
    await conversation.enqueue("second", patience=NO_PATIENCE)
    other = conversation.another()
    await other.begin()
    for each in (conversation, other):
        with pytest.raises(RequestIdReused):
            await each.begin("else", request_id="second", request_hash=b"else", conflict_policy=ConflictPolicy.ENQUEUE)


async def test_another_body_does_not_begin_under_the_id_of_one_that_waits(conversation: Conversation) -> None:
    """By no policy, and in no session, named or not; the one that waits can still be cancelled."""
    await conversation.begin("first")
    queued = await conversation.enqueue("second", patience=NO_PATIENCE)
    nameless = Conversation(conversation.store, user_id=conversation.user_id, session_id="")
    for each in (conversation, conversation.another(), nameless):
        with pytest.raises(RequestIdReused):
            await each.begin("else", request_id="second", request_hash=b"else")
    cancelled = await conversation.store.cancel_run(conversation.user_id, queued.run.run_id)
    assert cancelled.status is RunStatus.CANCELLED
    assert (await conversation.enqueue("second")).run == cancelled


async def test_waiting_takes_a_request_id(conversation: Conversation) -> None:
    """By what else could the place be found again?"""
    with pytest.raises(InvalidField) as refusal:
        await conversation.begin(conflict_policy=ConflictPolicy.ENQUEUE)
    assert [violation.field for violation in refusal.value.violations] == ["request_id"]


async def test_a_place_that_nobody_asks_for_is_lost(conversation: Conversation, ageing: Ageing) -> None:
    """Its run is none any more, the next comes in its place, and its request begins anew."""
    busy = await conversation.begin("first")
    lost = await conversation.enqueue("second", patience=NO_PATIENCE)
    third = await conversation.enqueue("third", patience=NO_PATIENCE)
    await ageing.lose_place(conversation.user_id, lost.run.run_id)
    with pytest.raises(RunNotFound):
        await conversation.run(lost)
    with pytest.raises(RunNotFound):
        await conversation.store.cancel_run(conversation.user_id, lost.run.run_id)
    assert [run.run_id for run in await conversation.runs(RunStatus.QUEUED)] == [third.run.run_id]
    await conversation.finish(busy)
    assert (await conversation.enqueue("third")).run.run_id == third.run.run_id
    anew = await conversation.enqueue("second", patience=NO_PATIENCE)
    assert (anew.run.status, anew.queued_ahead) == (RunStatus.QUEUED, 1)


async def test_a_place_that_is_lost_does_not_come_back(conversation: Conversation, ageing: Ageing) -> None:
    """Whoever still waits for its turn has a new one, after those that have come meanwhile."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    [lost] = await conversation.until_waiting()
    third = await conversation.enqueue("third", patience=NO_PATIENCE)
    await ageing.lose_place(conversation.user_id, lost.run_id)
    anew, before = await conversation.until_waiting(2)
    assert before.run_id == third.run.run_id
    assert anew.run_id != lost.run_id
    await conversation.finish(busy)
    await conversation.finish(await conversation.enqueue("third"))
    assert (await waiting).run.run_id == anew.run_id


async def test_a_lost_place_is_in_nobodys_way(conversation: Conversation, ageing: Ageing) -> None:
    """Nor is its request, with whatever body it comes."""
    busy = await conversation.begin("first")
    lost = await conversation.enqueue("second", patience=NO_PATIENCE)
    await ageing.lose_place(conversation.user_id, lost.run.run_id)
    await conversation.finish(busy)
    await conversation.finish(await conversation.begin("third"))
    begun = await conversation.another().begin(
        "else", request_id="second", request_hash=b"else", conflict_policy=ConflictPolicy.ENQUEUE
    )
    assert begun.run.status is RunStatus.RUNNING


async def test_a_dead_run_gives_way_to_one_that_waits(conversation: Conversation, ageing: Ageing) -> None:
    """As soon as its lease has run out."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    await conversation.until_waiting()
    await ageing.expire_lease(conversation.user_id, busy.run.run_id)
    assert (await waiting).run.status is RunStatus.RUNNING
    ended = await conversation.run(busy)
    assert ended.error is not None and ended.error.reason == "HOLDER_LOST"


async def test_a_dead_run_is_not_waited_for(conversation: Conversation) -> None:
    """One that is met dead is ended at once."""
    await conversation.begin("first", lease=RUN_OUT)
    assert (await conversation.enqueue("second", patience=NO_PATIENCE)).run.status is RunStatus.RUNNING


async def test_a_message_that_waited_answers_no_question_that_its_author_never_saw(
    conversation: Conversation,
) -> None:
    """One that was opened meanwhile is CANCELLED, and the message a new one."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    await conversation.until_waiting()
    finished = await conversation.finish(
        busy, said("Which product?"), status=RunStatus.AWAITING_INPUT, opened_task=question()
    )
    begun = await waiting
    assert (begun.claimed_task, begun.run.answered_task_id) == (None, "")
    assert finished.opened_task is not None
    task = await conversation.store.get_hitl_task(conversation.user_id, finished.opened_task.task_id)
    assert task.state is HitlState.CANCELLED


async def test_a_message_that_waited_answers_a_question_that_was_there_before(conversation: Conversation) -> None:
    """The run that had taken it failed."""
    task = await conversation.ask_back()
    busy = await conversation.begin("Harbor")
    waiting = asyncio.create_task(conversation.enqueue("Lighthouse"))
    await conversation.until_waiting()
    await conversation.finish(busy, status=RunStatus.FAILED)
    assert (await waiting).run.answered_task_id == task.task_id


async def test_one_that_is_refused_at_its_turn_leaves_its_place(conversation: Conversation) -> None:
    """Here by a question that waits, and is not to be answered in passing."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second", policy=PendingHitlPolicy.REJECT))
    await conversation.until_waiting()
    await conversation.finish(busy, status=RunStatus.AWAITING_INPUT, opened_task=question())
    with pytest.raises(HitlTaskPending):
        await waiting
    assert await conversation.runs(RunStatus.QUEUED) == []


async def test_an_answer_to_a_question_that_is_taken_does_not_wait(conversation: Conversation) -> None:
    """It is refused before any other reason."""
    task = await conversation.ask_back()
    await conversation.begin("Harbor")
    with pytest.raises(HitlTaskNotPending):
        await conversation.begin(
            "Lighthouse",
            answers_task_id=task.task_id,
            request_id="r",
            conflict_policy=ConflictPolicy.ENQUEUE,
        )


async def test_a_run_cancelled_while_it_waits_never_begins(conversation: Conversation) -> None:
    """Whoever waits is told at once, and a repeat finds it cancelled."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    [queued] = await conversation.until_waiting()
    cancelled = await conversation.store.cancel_run(conversation.user_id, queued.run_id)
    assert (cancelled.status, cancelled.cancel_requested) == (RunStatus.CANCELLED, True)
    assert cancelled.finish_time is not None and cancelled.error is None
    told = await waiting
    assert (told.run, told.is_holder) == (cancelled, False)
    await conversation.finish(busy)
    again = await conversation.enqueue("second")
    assert (again.run, again.already_begun) == (cancelled, True)
    assert await conversation.contents() == ["first"]


async def test_deleting_a_session_ends_the_waiting_in_it(conversation: Conversation) -> None:
    """Nothing of it comes back: neither now nor when the request is made again."""
    await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    await conversation.until_waiting()
    await conversation.store.delete_session(conversation.user_id, conversation.session_id)
    with pytest.raises(SessionDeleted) as refusal:
        await waiting
    assert refusal.value.metadata == {"session_id": conversation.session_id}
    with pytest.raises(SessionDeleted):
        await conversation.enqueue("second")
    with pytest.raises(SessionNotFound):
        await conversation.store.get_session(conversation.user_id, conversation.session_id)


async def test_one_that_gave_up_waiting_may_come_again(conversation: Conversation) -> None:
    """Its place is kept meanwhile."""
    busy = await conversation.begin("first")
    waiting = asyncio.create_task(conversation.enqueue("second"))
    [queued] = await conversation.until_waiting()
    waiting.cancel()
    await asyncio.wait([waiting])
    await conversation.finish(busy)
    assert (await conversation.enqueue("second")).run.run_id == queued.run_id


async def test_a_new_session_has_nobody_to_wait_for(store: ConversationStorage) -> None:
    """One that is to be made has no name to wait by."""
    nameless = Conversation(store, session_id="")
    begun = [await nameless.enqueue(name, patience=NO_PATIENCE) for name in ("first", "second")]
    assert [each.run.status for each in begun] == [RunStatus.RUNNING] * 2
