"""What is another user's cannot be told from what does not exist."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest

from askback.storage.v1 import hitl_service_pb2, run_pb2, run_service_pb2, session_pb2, session_service_pb2
from askback.storage.v1.run_service_pb2 import BeginRunResponse
from services.storage.server import SERVICE_NAMES
from tests.integration.storage.harness import Refusal, Storage, draft, human, refused


@dataclass(frozen=True)
class Ids:
    """What one user has: a session that waits for an answer, and one with a run under way."""

    session_id: str = "asked"
    message_id: str = "m"
    run_id: str = "r"
    task_id: str = "t"
    fencing_token: int = 1


@pytest.fixture
async def theirs(storage: Storage, user: str) -> Ids:
    owner = f"{user}-owner"
    await storage.turn(owner, "asked")
    asked = await storage.ask_back(owner, "asked")
    under_way: BeginRunResponse = await storage.begin(owner, "under way")
    return Ids(
        message_id=asked.reply.message_id,
        run_id=under_way.run.run_id,
        task_id=asked.opened_task.task_id,
        fencing_token=under_way.fencing_token,
    )


# How each method names something by its id.
NAMED: dict[str, Callable[[Ids], Any]] = {
    "LoadSession": lambda ids: session_service_pb2.LoadSessionRequest(session_id=ids.session_id),
    "GetSession": lambda ids: session_service_pb2.GetSessionRequest(session_id=ids.session_id),
    "ListMessages": lambda ids: session_service_pb2.ListMessagesRequest(session_id=ids.session_id),
    "GetMessage": lambda ids: session_service_pb2.GetMessageRequest(
        session_id=ids.session_id, message_id=ids.message_id
    ),
    "DeleteMessages": lambda ids: session_service_pb2.DeleteMessagesRequest(session_id=ids.session_id),
    "UpdateSession": lambda ids: session_service_pb2.UpdateSessionRequest(
        session=session_pb2.Session(session_id=ids.session_id, title="mine now")
    ),
    "DeleteSession": lambda ids: session_service_pb2.DeleteSessionRequest(session_id=ids.session_id),
    "BeginRun": lambda ids: run_service_pb2.BeginRunRequest(
        session_id=ids.session_id, message="my answer", answers_task_id=ids.task_id
    ),
    "RenewRun": lambda ids: run_service_pb2.RenewRunRequest(run_id=ids.run_id, fencing_token=ids.fencing_token),
    "FinishRun": lambda ids: run_service_pb2.FinishRunRequest(
        run_id=ids.run_id,
        fencing_token=ids.fencing_token,
        status=run_pb2.RUN_STATUS_AWAITING_INPUT,
        opened_task=draft(),
    ),
    "AppendRunEvents": lambda ids: run_service_pb2.AppendRunEventsRequest(
        run_id=ids.run_id, fencing_token=ids.fencing_token, events=[run_service_pb2.RunEvent(sequence=1)]
    ),
    "ListRuns": lambda ids: run_service_pb2.ListRunsRequest(session_id=ids.session_id),
    "CancelRun": lambda ids: run_service_pb2.CancelRunRequest(run_id=ids.run_id),
    "GetRun": lambda ids: run_service_pb2.GetRunRequest(run_id=ids.run_id),
    "GetHitlTask": lambda ids: hitl_service_pb2.GetHitlTaskRequest(task_id=ids.task_id),
    "CancelHitlTask": lambda ids: hitl_service_pb2.CancelHitlTaskRequest(task_id=ids.task_id),
}
# These make one's own where there is none.
MADE: dict[str, Callable[[Ids], Any]] = {
    "SaveSession": lambda ids: session_service_pb2.SaveSessionRequest(
        session_id=ids.session_id, messages=[human("mine", message_id=ids.message_id)], expected_revision=0
    ),
    "AppendMessages": lambda ids: session_service_pb2.AppendMessagesRequest(
        session_id=ids.session_id, messages=[human("mine", message_id=ids.message_id)], expected_revision=0
    ),
}
# These speak of all that a user has.
OF_THE_USER = {"ListSessions", "ListHitlTasks", "DeleteUserData"}
LATER = {"WatchRun"}


def _stub(storage: Storage, method: str) -> Any:
    stubs = (storage.sessions, storage.runs, storage.hitl)
    return next(getattr(stub, method) for stub in stubs if hasattr(stub, method))


def _methods() -> set[str]:
    files = (session_service_pb2.DESCRIPTOR, run_service_pb2.DESCRIPTOR, hitl_service_pb2.DESCRIPTOR)
    return {method.name for file in files for service in file.services_by_name.values() for method in service.methods}


def test_every_method_is_in_one_of_these_lists() -> None:
    assert sorted([*NAMED, *MADE, *OF_THE_USER, *LATER]) == sorted(_methods())


@pytest.mark.parametrize("method", sorted(NAMED))
async def test_another_users_is_not_found_in_the_same_words_as_the_unknown(
    storage: Storage, other_storage: Storage, user: str, theirs: Ids, method: str
) -> None:
    unknown = replace(theirs, session_id="unknown", message_id="unknown", run_id="unknown", task_id="unknown")

    async def told(ids: Ids) -> Refusal:
        request = NAMED[method](ids)
        (request.session if method == "UpdateSession" else request).user_id = user
        refusal = await refused(_stub(other_storage, method)(request, timeout=20))
        [(key, named)] = refusal.metadata.items()
        assert named == getattr(ids, key)
        return replace(refusal, metadata={key: ""})

    refusal = await told(theirs)
    assert refusal.code is grpc.StatusCode.NOT_FOUND
    assert refusal == await told(unknown)
    await _check_untouched(storage, user, theirs)


async def _check_untouched(storage: Storage, user: str, theirs: Ids) -> None:
    owner = f"{user}-owner"
    session = await storage.session(owner, "asked")
    assert (session.title, session.revision, session.message_count) == ("asked", 4, 4)
    assert session.pending_hitl_task_id == theirs.task_id
    assert (await storage.session(owner, "under way")).active_run_id == theirs.run_id
    run = await storage.runs.GetRun(run_service_pb2.GetRunRequest(user_id=owner, run_id=theirs.run_id))
    assert (run.run.status, run.run.cancel_requested) == (run_pb2.RUN_STATUS_RUNNING, False)


async def test_another_users_run_is_not_retried(storage: Storage, user: str, theirs: Ids) -> None:
    for run_id in (theirs.run_id, "unknown"):
        refusal = await refused(storage.begin(user, "under way", message="", retries_run_id=run_id))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
        assert refusal.metadata == {"run_id": run_id}
    await _check_untouched(storage, user, theirs)


@pytest.mark.parametrize("method", sorted(MADE))
async def test_what_is_made_under_another_users_ids_is_ones_own(
    storage: Storage, other_storage: Storage, user: str, theirs: Ids, method: str
) -> None:
    request = MADE[method](theirs)
    request.user_id = user
    made = await _stub(other_storage, method)(request, timeout=20)
    assert (made.session.user_id, made.session.message_count, made.session.revision) == (user, 1, 1)
    assert [message.content for message in await storage.messages(user, "asked")] == ["mine"]
    await _check_untouched(storage, user, theirs)


async def test_deleting_a_users_data_leaves_all_others(storage: Storage, user: str, theirs: Ids) -> None:
    request = session_service_pb2.DeleteUserDataRequest(user_id=user)
    assert (await storage.sessions.DeleteUserData(request, timeout=20)).deleted_session_count == 0
    await _check_untouched(storage, user, theirs)


async def test_a_message_of_another_users_session_is_not_found_in_ones_own(
    storage: Storage, user: str, theirs: Ids
) -> None:
    await storage.turn(user, "asked")
    request = session_service_pb2.GetMessageRequest(user_id=user, session_id="asked", message_id=theirs.message_id)
    assert (await refused(storage.sessions.GetMessage(request))).reason == "MESSAGE_NOT_FOUND"


async def test_lists_hold_ones_own_alone(storage: Storage, user: str, theirs: Ids) -> None:
    assert not (await storage.sessions.ListSessions(session_service_pb2.ListSessionsRequest(user_id=user))).sessions
    for session_id in ("", "asked"):
        request = hitl_service_pb2.ListHitlTasksRequest(user_id=user, session_id=session_id)
        assert not (await storage.hitl.ListHitlTasks(request)).tasks


async def test_a_session_id_that_another_user_has_is_free_for_ones_own(
    storage: Storage, user: str, theirs: Ids
) -> None:
    begun = await storage.begin(user, "asked", message="mine", max_context_messages=10)
    assert (begun.run.human_position, len(begun.context)) == (1, 0)
    assert not begun.HasField("claimed_task")


async def test_another_users_page_token_is_refused(storage: Storage, user: str, theirs: Ids) -> None:
    owner = f"{user}-owner"
    requests: list[tuple[str, Any]] = [
        ("ListSessions", session_service_pb2.ListSessionsRequest(user_id=owner, page_size=1)),
        ("ListMessages", session_service_pb2.ListMessagesRequest(user_id=owner, session_id="asked", page_size=1)),
        ("ListRuns", run_service_pb2.ListRunsRequest(user_id=owner, session_id="asked", page_size=1)),
    ]
    for method, request in requests:
        request.page_token = (await _stub(storage, method)(request)).next_page_token
        assert request.page_token
        request.user_id = user
        assert (await refused(_stub(storage, method)(request))).reason == "INVALID_PAGE_TOKEN"


@pytest.mark.parametrize("method", sorted(LATER))
async def test_a_method_still_to_come_says_so(storage: Storage, method: str) -> None:
    service = next(name for name in SERVICE_NAMES if method in _names_of(name))
    call: Any = storage.channel.unary_stream(f"/{service}/{method}")
    refusal = await refused(anext(aiter(call(b"", timeout=20))))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED")
    assert refusal.metadata == {"feature": method}


def _names_of(service: str) -> set[str]:
    files = (session_service_pb2.DESCRIPTOR, run_service_pb2.DESCRIPTOR, hitl_service_pb2.DESCRIPTOR)
    found = next(each for file in files for each in file.services_by_name.values() if each.full_name == service)
    return set(found.methods_by_name)
