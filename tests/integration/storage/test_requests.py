"""A request that is sent again takes effect once, whoever answers it."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from askback.storage.v1.run_pb2 import RUN_STATUS_COMPLETED, RUN_STATUS_RUNNING
from askback.storage.v1.session_service_pb2 import DeleteSessionRequest, GetSessionRequest, ListSessionsRequest
from tests.integration.storage.harness import Storage, refused


async def test_the_holder_that_begins_again_goes_on_as_holder(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    await storage.turn(user)
    asked: dict[str, Any] = {"request_id": "r", "holder_id": "h", "max_context_messages": 10}
    first = await storage.begin(user, **asked)
    again = await other_storage.begin(user, **asked)
    assert again.already_begun and again.is_holder
    assert (again.run, again.fencing_token) == (first.run, first.fencing_token)
    assert again.context == first.context and len(first.context) == 2
    assert again.session.message_count == 3
    assert (await other_storage.finish(again)).run.status == RUN_STATUS_COMPLETED


@pytest.mark.parametrize("holder_id", ["another", ""])
async def test_anyone_else_who_begins_the_same_can_only_watch(storage: Storage, user: str, holder_id: str) -> None:
    first = await storage.begin(user, request_id="r", holder_id="h")
    other = await storage.begin(user, request_id="r", holder_id=holder_id)
    assert other.already_begun and not other.is_holder
    assert other.run.run_id == first.run.run_id
    assert (other.fencing_token, len(other.context)) == (0, 0)
    assert other.session.message_count == 1


async def test_what_an_attempt_makes_up_anew_leaves_the_request_the_same(storage: Storage, user: str) -> None:
    first = await storage.begin(user, request_id="r")
    again = await storage.begin(
        user, request_id="r", lease=Duration(seconds=77), max_context_messages=7, title_if_new="another title"
    )
    assert again.already_begun
    assert again.run.run_id == first.run.run_id


@pytest.mark.parametrize("changed", [{"message": "other words"}, {"session_id": "elsewhere"}, {"answers_task_id": "t"}])
async def test_the_same_id_with_another_request_is_refused(
    storage: Storage, user: str, changed: dict[str, str]
) -> None:
    await storage.begin(user, request_id="r")
    refusal = await refused(storage.begin(user, request_id="r", **changed))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED")
    sessions = await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))
    assert [(session.session_id, session.message_count) for session in sessions.sessions] == [("s", 1)]


async def test_the_same_id_is_another_request_for_another_user(storage: Storage, user: str) -> None:
    first = await storage.begin(user, request_id="r")
    second = await storage.begin(f"{user}-b", request_id="r", message="other words")
    assert not second.already_begun
    assert second.run.run_id != first.run.run_id


async def test_the_same_id_is_another_request_on_another_method(storage: Storage, user: str) -> None:
    await storage.finish(await storage.begin(user, request_id="r"))
    await storage.sessions.DeleteSession(DeleteSessionRequest(user_id=user, session_id="s", request_id="r"))
    assert (await refused(storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s")))).reason == (
        "SESSION_NOT_FOUND"
    )


async def test_begun_many_times_at_once_on_two_replicas_a_request_takes_effect_once(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    calls = [
        replica.begin(user, request_id="r", holder_id=f"h{n}") for n in range(8) for replica in (storage, other_storage)
    ]
    begun = await asyncio.gather(*calls)
    assert len({answer.run.run_id for answer in begun}) == 1
    assert sum(not answer.already_begun for answer in begun) == 1
    assert {answer.session.message_count for answer in begun} == {1}


async def test_a_request_that_makes_its_session_finds_the_same_one_again(storage: Storage, user: str) -> None:
    first, again = [await storage.begin(user, "", request_id="r", holder_id="h") for _ in range(2)]
    assert again.already_begun
    assert again.session.session_id == first.session.session_id


async def test_a_request_begun_again_after_its_end_shows_the_finished_run(storage: Storage, user: str) -> None:
    asked: dict[str, Any] = {"request_id": "r", "holder_id": "h"}
    finished = await storage.finish(await storage.begin(user, **asked))
    again = await storage.begin(user, **asked)
    assert again.already_begun and not again.is_holder
    assert again.run == finished.run


async def test_a_refused_request_leaves_its_id_free(storage: Storage, user: str) -> None:
    blocking = await storage.begin(user)
    assert (await refused(storage.begin(user, request_id="r"))).reason == "RUN_IN_PROGRESS"
    await storage.finish(blocking)
    begun = await storage.begin(user, request_id="r")
    assert not begun.already_begun and begun.run.status == RUN_STATUS_RUNNING


async def test_an_empty_request_id_promises_nothing(storage: Storage, user: str) -> None:
    first = await storage.turn(user)
    second = await storage.turn(user)
    assert first.run.run_id != second.run.run_id


async def test_a_delete_that_is_sent_again_gets_the_first_answer(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    await storage.turn(user)
    request = DeleteSessionRequest(user_id=user, session_id="s", request_id="r")
    first = await storage.sessions.DeleteSession(request)
    await storage.turn(user)
    again = await other_storage.sessions.DeleteSession(request)
    assert again == first
    assert first.deleted_message_count == 2
    session = (await storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s"))).session
    assert session.message_count == 2


async def test_a_late_repeat_brings_no_deleted_session_back(storage: Storage, user: str) -> None:
    await storage.begin(user, request_id="r", holder_id="h")
    await storage.sessions.DeleteSession(DeleteSessionRequest(user_id=user, session_id="s"))
    refusal = await refused(storage.begin(user, request_id="r", holder_id="h"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "SESSION_DELETED")
    assert refusal.metadata == {"session_id": "s"}
    assert not (await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))).sessions
