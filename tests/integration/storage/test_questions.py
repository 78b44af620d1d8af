"""A question put to the user is answered once, and only by whom it was put to."""

import asyncio
from datetime import UTC, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1.hitl_service_pb2 import GetHitlTaskRequest, ListHitlTasksRequest
from askback.storage.v1.run_pb2 import (
    RUN_STATUS_AWAITING_INPUT,
    RUN_STATUS_CANCELLED,
    RUN_STATUS_FAILED,
    RunStatus,
)
from askback.storage.v1.run_service_pb2 import (
    PENDING_HITL_POLICY_ANSWER,
    PENDING_HITL_POLICY_REJECT,
    PENDING_HITL_POLICY_REPLACE,
)
from askback.storage.v1.session_pb2 import MESSAGE_STATUS_AWAITING_INPUT
from askback.storage.v1.session_service_pb2 import GetSessionRequest, ListMessagesRequest
from tests.integration.storage.harness import EndLease, Storage, draft, eventually, refusal_of, refused

RESUME_STATE = trace_pb2.HitlResumeState(
    question="a question",
    route=trace_pb2.ROUTE_SCOPE_SELECT,
    retrieval_status=trace_pb2.RETRIEVAL_STATUS_NEEDS_SCOPE_SELECTION,
    rewrite_count=1,
    complexity=trace_pb2.COMPLEXITY_COMPLEX,
    sub_questions=["one", "two"],
    collection="manuals",
)


async def _task(storage: Storage, user: str, task_id: str) -> hitl_pb2.HitlTask:
    return (await storage.hitl.GetHitlTask(GetHitlTaskRequest(user_id=user, task_id=task_id))).task


async def _pending(storage: Storage, user: str) -> str:
    session = (await storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s"))).session
    return session.pending_hitl_task_id


async def test_a_question_is_stored_once_as_it_was_put(storage: Storage, other_storage: Storage, user: str) -> None:
    asked = await storage.ask_back(
        user,
        kind=hitl_pb2.HITL_KIND_SCOPE_SELECT,
        options=["the first", "کتابخانه\u200cها"],
        answers=["an earlier answer"],
        resume_state=RESUME_STATE,
    )
    task = asked.opened_task
    assert (task.state, task.run_id, task.session_id) == (hitl_pb2.HITL_STATE_PENDING, asked.run.run_id, "s")
    assert (task.original_question, task.prompt) == ("a question", "which one?")
    assert (list(task.options), list(task.answers)) == (["the first", "کتابخانه\u200cها"], ["an earlier answer"])
    assert (task.resume_state, task.retrieval_status) == (RESUME_STATE, RESUME_STATE.retrieval_status)
    assert task.expire_time.ToDatetime(UTC) - task.create_time.ToDatetime(UTC) == timedelta(days=7)
    assert asked.reply.status == MESSAGE_STATUS_AWAITING_INPUT
    assert asked.run.status == RUN_STATUS_AWAITING_INPUT
    assert asked.session.pending_hitl_task_id == task.task_id
    assert await _task(other_storage, user, task.task_id) == task
    listed = await other_storage.hitl.ListHitlTasks(ListHitlTasksRequest(user_id=user))
    assert list(listed.tasks) == [task]


@pytest.mark.parametrize("by_id", [True, False])
async def test_the_next_message_claims_the_question_and_its_end_settles_it(
    storage: Storage, other_storage: Storage, user: str, by_id: bool
) -> None:
    task = (await storage.ask_back(user, resume_state=RESUME_STATE)).opened_task
    begun = await other_storage.begin(
        user,
        message="the blue one",
        answers_task_id=task.task_id if by_id else "",
        pending_hitl_policy=PENDING_HITL_POLICY_ANSWER,
    )
    assert begun.run.answered_task_id == begun.claimed_task.task_id == task.task_id
    assert begun.claimed_task.state == hitl_pb2.HITL_STATE_CLAIMED
    assert begun.claimed_task.resume_state == RESUME_STATE
    assert await _pending(storage, user) == ""
    await other_storage.finish(begun)
    settled = await _task(storage, user, task.task_id)
    assert settled.state == hitl_pb2.HITL_STATE_ANSWERED
    assert (settled.answer, settled.answered_by_run_id) == ("the blue one", begun.run.run_id)
    assert settled.HasField("resolve_time")


async def test_of_many_answers_at_once_one_is_taken(storage: Storage, other_storage: Storage, user: str) -> None:
    task = (await storage.ask_back(user)).opened_task
    calls = [
        replica.begin(user, message=f"answer {n}", answers_task_id=task.task_id)
        for n in range(6)
        for replica in (storage, other_storage)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [refusal_of(outcome) for outcome in outcomes if isinstance(outcome, grpc.aio.AioRpcError)]
    assert len(refusals) == 11
    assert {(refusal.reason, refusal.metadata["state"]) for refusal in refusals} == {
        ("HITL_TASK_NOT_PENDING", "CLAIMED")
    }
    page = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    assert [message.position for message in page.messages] == [1, 2, 3]


@pytest.mark.parametrize("status", [RUN_STATUS_FAILED, RUN_STATUS_CANCELLED])
async def test_a_run_that_fails_or_is_cancelled_gives_the_question_back(
    storage: Storage, other_storage: Storage, user: str, status: RunStatus.ValueType
) -> None:
    task = (await storage.ask_back(user)).opened_task
    begun = await storage.begin(user, message="the blue one")
    finished = await storage.finish(begun, "I th", status=status)
    assert finished.session.pending_hitl_task_id == task.task_id
    assert await _task(other_storage, user, task.task_id) == task
    again = await other_storage.begin(user, message="the red one", answers_task_id=task.task_id)
    assert again.claimed_task.task_id == task.task_id


async def test_a_run_whose_holder_is_gone_gives_the_question_back(
    storage: Storage, other_storage: Storage, user: str, end_lease: EndLease
) -> None:
    task = (await storage.ask_back(user)).opened_task
    lost = await storage.begin(user, answers_task_id=task.task_id)
    await end_lease(lost)
    again = await other_storage.begin(user, message="the red one", answers_task_id=task.task_id)
    assert again.claimed_task.task_id == task.task_id
    await other_storage.finish(again)
    assert (await _task(storage, user, task.task_id)).answer == "the red one"


async def test_a_message_that_replaces_the_question_cancels_it(storage: Storage, user: str) -> None:
    task = (await storage.ask_back(user)).opened_task
    begun = await storage.begin(user, message="something else", pending_hitl_policy=PENDING_HITL_POLICY_REPLACE)
    assert not begun.HasField("claimed_task") and begun.run.answered_task_id == ""
    cancelled = await _task(storage, user, task.task_id)
    assert cancelled.state == hitl_pb2.HITL_STATE_CANCELLED
    assert cancelled.HasField("resolve_time")
    await storage.finish(begun)
    refusal = await refused(storage.begin(user, answers_task_id=task.task_id))
    assert refusal.metadata == {"task_id": task.task_id, "state": "CANCELLED"}


async def test_a_message_that_must_not_meet_a_question_is_refused(storage: Storage, user: str) -> None:
    task = (await storage.ask_back(user)).opened_task
    refusal = await refused(storage.begin(user, pending_hitl_policy=PENDING_HITL_POLICY_REJECT))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "HITL_TASK_PENDING")
    assert refusal.metadata == {"task_id": task.task_id}
    assert await _task(storage, user, task.task_id) == task
    answer = await storage.begin(user, answers_task_id=task.task_id, pending_hitl_policy=PENDING_HITL_POLICY_REJECT)
    assert answer.claimed_task.task_id == task.task_id


async def test_an_answered_question_is_refused_with_its_state(storage: Storage, user: str) -> None:
    task = (await storage.ask_back(user)).opened_task
    await storage.turn(user, message="the blue one")
    refusal = await refused(storage.begin(user, answers_task_id=task.task_id))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "HITL_TASK_NOT_PENDING")
    assert refusal.metadata == {"task_id": task.task_id, "state": "ANSWERED"}


async def test_a_question_of_another_session_is_not_found(storage: Storage, user: str) -> None:
    task = (await storage.ask_back(user, "a")).opened_task
    for session_id in ("b", ""):
        refusal = await refused(storage.begin(user, session_id, answers_task_id=task.task_id))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "HITL_TASK_NOT_FOUND")
    assert await _task(storage, user, task.task_id) == task


async def test_a_question_expires_by_itself(storage: Storage, other_storage: Storage, user: str) -> None:
    task = (await storage.ask_back(user, expire_after=Duration(seconds=1))).opened_task
    seen = await eventually(
        lambda: _task(other_storage, user, task.task_id), lambda task: task.state == hitl_pb2.HITL_STATE_EXPIRED
    )
    assert seen.resolve_time == seen.expire_time
    assert await _pending(storage, user) == ""
    refusal = await refused(storage.begin(user, answers_task_id=task.task_id))
    assert refusal.metadata == {"task_id": task.task_id, "state": "EXPIRED"}
    begun = await storage.begin(user, message="a new question", pending_hitl_policy=PENDING_HITL_POLICY_REJECT)
    assert not begun.HasField("claimed_task")


async def test_a_retried_finish_opens_one_question(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    asked: dict[str, Any] = {"status": RUN_STATUS_AWAITING_INPUT, "opened_task": draft()}
    first, again = [await storage.finish(begun, "which one?", **asked) for _ in range(2)]
    assert again == first
    listed = await storage.hitl.ListHitlTasks(ListHitlTasksRequest(user_id=user))
    assert [task.task_id for task in listed.tasks] == [first.opened_task.task_id]


async def test_a_second_round_asks_anew_and_settles_the_first(storage: Storage, user: str) -> None:
    first = (await storage.ask_back(user)).opened_task
    begun = await storage.begin(user, message="the blue one")
    asked = await storage.finish(
        begun, "which blue?", status=RUN_STATUS_AWAITING_INPUT, opened_task=draft(answers=["the blue one"])
    )
    assert (await _task(storage, user, first.task_id)).state == hitl_pb2.HITL_STATE_ANSWERED
    assert asked.session.pending_hitl_task_id == asked.opened_task.task_id != first.task_id
    assert list(asked.opened_task.answers) == ["the blue one"]


async def test_questions_are_listed_by_session_and_state_oldest_first_page_by_page(storage: Storage, user: str) -> None:
    tasks = [(await storage.ask_back(user, f"s{n}")).opened_task for n in range(5)]
    await storage.turn(user, "s1", message="the blue one")

    async def listed(**asked: Any) -> list[str]:
        found: list[str] = []
        request = ListHitlTasksRequest(user_id=user, page_size=2, **asked)
        while True:
            page = await storage.hitl.ListHitlTasks(request)
            found += [task.task_id for task in page.tasks]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    ids = [task.task_id for task in tasks]
    assert await listed() == ids
    assert await listed(state=hitl_pb2.HITL_STATE_PENDING) == [ids[0], *ids[2:]]
    assert await listed(state=hitl_pb2.HITL_STATE_ANSWERED) == [ids[1]]
    assert await listed(session_id="s3") == [ids[3]]
    assert await listed(session_id="unknown") == []
