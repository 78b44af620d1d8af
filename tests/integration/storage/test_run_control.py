"""The runs of a session as a caller sees them: listed, queued, cancelled, told of, and ended without their holder."""

import asyncio
import time

import grpc
import pytest

from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import run_pb2
from askback.storage.v1.hitl_service_pb2 import CancelHitlTaskRequest
from askback.storage.v1.run_pb2 import Run
from askback.storage.v1.run_service_pb2 import (
    AppendRunEventsRequest,
    AppendRunEventsResponse,
    BeginRunRequest,
    BeginRunResponse,
    CancelRunRequest,
    GetRunRequest,
    ListRunsRequest,
    ListRunsResponse,
    RenewRunRequest,
    RunEvent,
)
from askback.storage.v1.session_pb2 import MESSAGE_STATUS_STOPPED
from tests.integration.storage.harness import EndLease, Storage, eventually, refused


async def _cancel(storage: Storage, begun: BeginRunResponse) -> Run:
    request = CancelRunRequest(user_id=begun.run.user_id, run_id=begun.run.run_id)
    return (await storage.runs.CancelRun(request, timeout=20)).run


async def _tell(
    storage: Storage, begun: BeginRunResponse, *events: RunEvent, fencing_token: int | None = None
) -> AppendRunEventsResponse:
    request = AppendRunEventsRequest(
        user_id=begun.run.user_id,
        run_id=begun.run.run_id,
        fencing_token=begun.fencing_token if fencing_token is None else fencing_token,
        events=events,
    )
    return await storage.runs.AppendRunEvents(request, timeout=20)


async def test_a_sessions_runs_are_listed_page_by_page_newest_first(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    runs = [(await storage.turn(user)).run for _ in range(5)]
    await storage.turn(user, "another")
    request = ListRunsRequest(user_id=user, session_id="s", page_size=2)
    pages = []
    for replica in (storage, other_storage, storage):
        page = await replica.runs.ListRuns(request)
        pages.append(list(page.runs))
        request.page_token = page.next_page_token
        # A run that comes between two pages shifts none.
        runs.append((await storage.turn(user)).run)
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [run for page in pages for run in page] == list(reversed(runs[:5]))
    assert not request.page_token


async def test_a_page_token_is_of_one_sessions_runs(storage: Storage, user: str) -> None:
    for session_id in ("s", "s", "another", "another"):
        await storage.turn(user, session_id)
    page: ListRunsResponse = await storage.runs.ListRuns(ListRunsRequest(user_id=user, session_id="s", page_size=1))
    for session_id, token in (("another", page.next_page_token), ("s", page.next_page_token[:-1]), ("s", "x")):
        request = ListRunsRequest(user_id=user, session_id=session_id, page_token=token)
        refusal = await refused(storage.runs.ListRuns(request))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")


async def test_the_runs_of_no_session_are_not_found(storage: Storage, user: str) -> None:
    refusal = await refused(storage.runs.ListRuns(ListRunsRequest(user_id=user, session_id="s")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


async def test_a_queued_run_is_told_its_place_within_the_callers_deadline(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    request = BeginRunRequest(
        user_id=user,
        session_id="s",
        message="next",
        request_id="r",
        holder_id="h",
        conflict_policy=run_pb2.CONFLICT_POLICY_ENQUEUE,
    )
    began = time.monotonic()
    queued = await storage.runs.BeginRun(request, timeout=1)
    assert time.monotonic() - began < 1
    assert (queued.run.status, queued.queued_ahead, queued.is_holder) == (run_pb2.RUN_STATUS_QUEUED, 1, False)
    assert not queued.HasField("human_message")
    assert (await storage.session(user)).message_count == 1

    waiting = asyncio.ensure_future(other_storage.runs.BeginRun(request, timeout=20))
    await storage.finish(begun)
    taken = await waiting
    assert (taken.run.status, taken.is_holder) == (run_pb2.RUN_STATUS_RUNNING, True)
    assert taken.run.run_id == queued.run.run_id
    assert (taken.human_message.content, taken.human_message.position) == ("next", 3)
    listed = await storage.runs.ListRuns(ListRunsRequest(user_id=user, session_id="s"))
    assert [run.run_id for run in listed.runs] == [taken.run.run_id, begun.run.run_id]


async def test_a_run_begins_with_the_message_as_it_was_stored(storage: Storage, user: str) -> None:
    begun = await storage.begin(user, message="words")
    assert [begun.human_message] == await storage.messages(user)


async def test_a_failed_turn_is_answered_anew(storage: Storage, user: str) -> None:
    first = await storage.begin(user, message="words")
    await storage.finish(first, "half an", status=run_pb2.RUN_STATUS_FAILED)
    again = await storage.begin(user, message="", retries_run_id=first.run.run_id)
    assert (again.human_message.content, again.session.message_count) == ("words", 1)
    await storage.finish(again, "a whole answer")
    assert [message.content for message in await storage.messages(user)] == ["words", "a whole answer"]
    refusal = await refused(storage.begin(user, message="", retries_run_id=again.run.run_id))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_NOT_RETRYABLE")
    assert refusal.metadata == {"run_id": again.run.run_id, "status": "COMPLETED"}


async def test_a_live_holder_is_asked_to_stop_and_learns_of_it(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    asked = await _cancel(other_storage, begun)
    assert (asked.status, asked.cancel_requested) == (run_pb2.RUN_STATUS_RUNNING, True)
    renewed = await storage.runs.RenewRun(
        RenewRunRequest(user_id=user, run_id=begun.run.run_id, fencing_token=begun.fencing_token)
    )
    assert renewed.run.cancel_requested
    assert (await _tell(storage, begun, RunEvent(sequence=1))).cancel_requested
    finished = await storage.finish(begun, status=run_pb2.RUN_STATUS_CANCELLED)
    assert await _cancel(other_storage, begun) == finished.run


async def test_a_run_whose_holder_died_ends_cancelled_with_what_it_had_said(
    storage: Storage, other_storage: Storage, user: str, end_lease: EndLease
) -> None:
    begun = await storage.begin(user)
    told = await _tell(storage, begun, RunEvent(sequence=1, reply_text="half "), RunEvent(sequence=2, reply_text="an"))
    assert (told.last_sequence, told.cancel_requested) == (2, False)
    await end_lease(begun)
    ended = await _cancel(other_storage, begun)
    # The upkeep of a replica may have come first.
    assert ended.status in (run_pb2.RUN_STATUS_CANCELLED, run_pb2.RUN_STATUS_FAILED)
    [_, reply] = await storage.messages(user)
    assert reply.content == "half an"
    if ended.status == run_pb2.RUN_STATUS_CANCELLED:
        assert reply.status == MESSAGE_STATUS_STOPPED
    assert (await refused(_tell(storage, begun, RunEvent(sequence=3)))).reason == "LEASE_LOST"


async def test_events_that_are_sent_again_are_passed_over(storage: Storage, other_storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    await _tell(storage, begun, RunEvent(sequence=1, payload=b"one"), RunEvent(sequence=2, payload=b"two"))
    again = await _tell(
        other_storage, begun, RunEvent(sequence=2, payload=b"two"), RunEvent(sequence=3, payload=b"three", last=True)
    )
    assert again.last_sequence == 3
    assert (await refused(_tell(storage, begun, RunEvent(sequence=4)))).reason == "LEASE_LOST"


@pytest.mark.parametrize("token", [0, -1, 2**63 - 1])
async def test_events_of_another_holder_are_refused(storage: Storage, user: str, token: int) -> None:
    begun = await storage.begin(user)
    refusal = await refused(_tell(storage, begun, RunEvent(sequence=1), fencing_token=token))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "LEASE_LOST")
    assert refusal.metadata == {"run_id": begun.run.run_id}


async def test_a_question_that_was_withdrawn_is_no_longer_put(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    asked = await storage.ask_back(user)
    task_id = asked.opened_task.task_id
    request = CancelHitlTaskRequest(user_id=user, task_id=task_id, request_id="r")
    task = (await storage.hitl.CancelHitlTask(request)).task
    assert (task.state, task.task_id) == (hitl_pb2.HITL_STATE_CANCELLED, task_id)
    session = await other_storage.session(user)
    assert (session.pending_hitl_task_id, session.revision) == ("", asked.session.revision + 1)
    assert not (await storage.begin(user)).HasField("claimed_task")

    assert (await other_storage.hitl.CancelHitlTask(request)).task == task
    request.request_id = "another"
    refusal = await refused(storage.hitl.CancelHitlTask(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "HITL_TASK_NOT_PENDING")
    assert refusal.metadata == {"task_id": task_id, "state": "CANCELLED"}
    request.request_id, request.task_id = "r", "another"
    assert (await refused(storage.hitl.CancelHitlTask(request))).reason == "REQUEST_ID_REUSED"


async def test_a_run_whose_lease_has_run_out_is_ended_though_nobody_asks(
    storage: Storage, user: str, end_lease: EndLease
) -> None:
    begun = await storage.begin(user)
    await _tell(storage, begun, RunEvent(sequence=1, reply_text="half an"))
    await end_lease(begun)
    await eventually(lambda: storage.session(user), lambda session: not session.active_run_id)
    run = (await storage.runs.GetRun(GetRunRequest(user_id=user, run_id=begun.run.run_id))).run
    assert (run.status, run.error.reason) == (run_pb2.RUN_STATUS_FAILED, "HOLDER_LOST")
    assert [message.content for message in await storage.messages(user)] == ["a question", "half an"]
