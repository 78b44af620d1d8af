"""DeleteMessages and DeleteUserData over a channel; DeleteSession is in test_sessions.py."""

import grpc
import pytest

from askback.rag.v1 import hitl_pb2
from askback.storage.v1.hitl_service_pb2 import GetHitlTaskRequest, ListHitlTasksRequest
from askback.storage.v1.run_service_pb2 import GetRunRequest
from askback.storage.v1.session_service_pb2 import (
    DeleteMessagesRequest,
    DeleteMessagesResponse,
    DeleteUserDataRequest,
    ListSessionsRequest,
)
from tests.integration.storage.harness import Storage, human, refused


async def _delete(storage: Storage, user: str, after: int, **fields: object) -> DeleteMessagesResponse:
    request = DeleteMessagesRequest(
        user_id=user,
        session_id="s",
        after_position=after,
        **fields,  # type: ignore[arg-type]
    )
    return await storage.sessions.DeleteMessages(request, timeout=20)


@pytest.mark.parametrize(("after", "left", "deleted"), [(0, 0, 4), (3, 3, 1), (4, 4, 0), (2**63 - 1, 4, 0)])
async def test_the_messages_after_a_position_are_taken_back(
    storage: Storage, other_storage: Storage, user: str, after: int, left: int, deleted: int
) -> None:
    await storage.append(user, "s", *(human(str(n)) for n in range(4)))
    answer = await _delete(storage, user, after)
    assert answer.deleted_message_count == deleted
    assert (answer.session.message_count, answer.session.revision) == (left, 2 if deleted else 1)
    assert [message.content for message in await other_storage.messages(user)] == [str(n) for n in range(left)]
    assert (await storage.append(user)).messages[0].position == left + 1


async def test_a_question_among_them_is_withdrawn(storage: Storage, user: str) -> None:
    asked = await storage.ask_back(user)
    assert not (await _delete(storage, user, 1)).session.pending_hitl_task_id
    request = GetHitlTaskRequest(user_id=user, task_id=asked.opened_task.task_id)
    assert (await storage.hitl.GetHitlTask(request)).task.state == hitl_pb2.HITL_STATE_CANCELLED


async def test_a_delete_of_messages_that_is_sent_again_takes_effect_once(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    await storage.append(user)
    first = await _delete(storage, user, 1, request_id="r")
    await storage.append(user)
    again = await _delete(other_storage, user, 1, request_id="r")
    assert (again.deleted_message_count, again.session.message_count) == (first.deleted_message_count, 3)
    refusal = await refused(_delete(other_storage, user, 0, request_id="r"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED")


async def test_what_stands_in_the_way_of_a_delete_is_told(storage: Storage, user: str) -> None:
    await storage.append(user)
    mismatch = await refused(_delete(storage, user, 0, expected_revision=9))
    assert (mismatch.code, mismatch.reason) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    begun = await storage.begin(user)
    held = await refused(_delete(storage, user, 0))
    assert (held.code, held.reason) == (grpc.StatusCode.ABORTED, "RUN_IN_PROGRESS")
    assert held.metadata == {"active_run_id": begun.run.run_id}
    assert (await storage.session(user)).message_count == 3


async def test_nothing_of_a_user_is_left_and_late_repeats_bring_nothing_back(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    await storage.append(user, "appended", request_id="r")
    turn = await storage.turn(user, "talked")
    asked = await storage.ask_back(user, "asked")
    begun = await storage.begin(user, "under way")
    await storage.append(f"{user}-b")
    request = DeleteUserDataRequest(user_id=user, request_id="delete")
    assert (await other_storage.sessions.DeleteUserData(request, timeout=20)).deleted_session_count == 4

    assert not (await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))).sessions
    assert not (await storage.hitl.ListHitlTasks(ListHitlTasksRequest(user_id=user))).tasks
    for run_id in (turn.run.run_id, asked.run.run_id, begun.run.run_id):
        get = GetRunRequest(user_id=user, run_id=run_id)
        assert (await refused(storage.runs.GetRun(get))).reason == "RUN_NOT_FOUND"
    assert (await refused(storage.finish(begun))).reason == "RUN_NOT_FOUND"
    assert (await refused(storage.append(user, "appended", request_id="r"))).reason == "SESSION_DELETED"
    assert (await storage.session(f"{user}-b")).message_count == 2

    await storage.append(user, "anew")
    assert (await storage.sessions.DeleteUserData(request, timeout=20)).deleted_session_count == 4
    assert (await storage.session(user, "anew")).message_count == 2
