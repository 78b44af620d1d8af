"""Reading, listing and deleting sessions."""

import asyncio
from collections.abc import Iterable

import grpc
import pytest

from askback.storage.v1 import session_pb2
from askback.storage.v1.hitl_service_pb2 import GetHitlTaskRequest, ListHitlTasksRequest
from askback.storage.v1.run_service_pb2 import GetRunRequest, RenewRunRequest
from askback.storage.v1.session_service_pb2 import (
    SESSION_VIEW_BASIC,
    SESSION_VIEW_FULL,
    SESSION_VIEW_ID,
    SESSION_VIEW_UNSPECIFIED,
    DeleteSessionRequest,
    GetSessionRequest,
    ListMessagesRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    SessionView,
)
from tests.integration.storage.harness import Storage, finish_request, refused, unique


async def _get(storage: Storage, user: str, session_id: str = "s") -> session_pb2.Session:
    return (await storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id=session_id))).session


async def _delete(storage: Storage, user: str, session_id: str = "s") -> int:
    deleted = await storage.sessions.DeleteSession(DeleteSessionRequest(user_id=user, session_id=session_id))
    return deleted.deleted_message_count


async def _listed(storage: Storage, request: ListSessionsRequest) -> list[str]:
    found: list[str] = []
    while True:
        page = await storage.sessions.ListSessions(request)
        found += [session.session_id for session in page.sessions]
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_a_session_reads_the_same_on_every_replica(storage: Storage, other_storage: Storage, user: str) -> None:
    finished = await storage.finish(await storage.begin(user, title_if_new="a title"), metadata={"k": [1, 0.5, None]})
    session = await _get(other_storage, user)
    assert session == finished.session
    assert (session.user_id, session.session_id, session.title) == (user, "s", "a title")
    assert (session.revision, session.message_count) == (2, 2)
    assert session.uid and session.HasField("create_time") and not session.HasField("expire_time")


async def test_a_session_without_a_title_is_called_by_its_id(storage: Storage, user: str) -> None:
    await storage.turn(user, "my session")
    assert (await _get(storage, user, "my session")).title == "my session"
    begun = await storage.begin(user, "my session", title_if_new="at last")
    assert begun.session.title == "at last"
    await storage.finish(begun)
    assert (await storage.begin(user, "my session", title_if_new="too late")).session.title == "at last"


async def test_an_unknown_session_is_not_found(storage: Storage, user: str) -> None:
    refusal = await refused(_get(storage, user, "nowhere"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    assert refusal.metadata == {"session_id": "nowhere"}


async def test_loading_gives_the_newest_messages_oldest_first(storage: Storage, user: str) -> None:
    for n in range(3):
        await storage.turn(user, message=f"q{n}", answer=f"a{n}")

    async def loaded(at_most: int) -> tuple[list[str], bool]:
        request = LoadSessionRequest(user_id=user, session_id="s", max_messages=at_most)
        answer = await storage.sessions.LoadSession(request)
        assert answer.session == await _get(storage, user)
        return [message.content for message in answer.messages], answer.truncated

    everything = ["q0", "a0", "q1", "a1", "q2", "a2"]
    assert await loaded(3) == (everything[-3:], True)
    assert await loaded(6) == (everything, False)
    assert await loaded(0) == (everything, False)
    assert await loaded(2**31 - 1) == (everything, False)


async def test_traces_are_loaded_where_asked_for(storage: Storage, user: str) -> None:
    reply = session_pb2.Message(content="x")
    reply.rag_trace.query = "q"
    await storage.finish(await storage.begin(user), reply=reply)
    for include in (False, True):
        request = LoadSessionRequest(user_id=user, session_id="s", include_traces=include)
        loaded = await storage.sessions.LoadSession(request)
        assert [message.HasField("rag_trace") for message in loaded.messages] == [False, include]


async def test_a_session_too_large_for_one_reply_is_loaded_as_far_as_it_fits(storage: Storage, user: str) -> None:
    for _ in range(18):
        await storage.turn(user, answer="知" * 349_525)
    loaded = await storage.sessions.LoadSession(LoadSessionRequest(user_id=user, session_id="s"))
    assert loaded.truncated
    assert 12 * 1_024 * 1_024 < loaded.ByteSize() <= 16 * 1_024 * 1_024
    positions = [message.position for message in loaded.messages]
    assert positions == list(range(positions[0], 37))


async def test_sessions_are_listed_last_changed_first(storage: Storage, other_storage: Storage, user: str) -> None:
    for session_id in ("a", "b", "c"):
        await storage.turn(user, session_id)
    await other_storage.begin(user, "a")
    assert await _listed(storage, ListSessionsRequest(user_id=user)) == ["a", "c", "b"]


async def test_a_user_without_sessions_has_an_empty_list(storage: Storage, user: str) -> None:
    page = await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))
    assert (len(page.sessions), page.next_page_token) == (0, "")


@pytest.mark.parametrize(
    ("view", "fields"),
    [
        (SESSION_VIEW_UNSPECIFIED, {"user_id", "session_id", "title", "uid", "message_count", "update_time"}),
        (SESSION_VIEW_BASIC, {"user_id", "session_id", "title", "uid", "message_count", "update_time"}),
        (SESSION_VIEW_FULL, {"user_id", "session_id", "title", "uid", "message_count", "update_time", "metadata"}),
        (SESSION_VIEW_ID, {"session_id"}),
    ],
)
async def test_a_view_has_its_fields(
    storage: Storage, user: str, view: SessionView.ValueType, fields: Iterable[str]
) -> None:
    await storage.finish(await storage.begin(user), metadata={"k": "v"})
    page = await storage.sessions.ListSessions(ListSessionsRequest(user_id=user, view=view))
    present = {field.name for field, _ in page.sessions[0].ListFields()}
    assert present - {"revision", "create_time"} == set(fields)


@pytest.mark.parametrize("view", [SESSION_VIEW_BASIC, SESSION_VIEW_FULL, SESSION_VIEW_ID])
async def test_pages_of_sessions_hold_each_once(storage: Storage, user: str, view: SessionView.ValueType) -> None:
    made = [f"s{n}" for n in range(7)]
    for session_id in made:
        await storage.begin(user, session_id)
    request = ListSessionsRequest(user_id=user, page_size=3, view=view)
    assert await _listed(storage, request) == made[::-1]


async def test_a_page_of_sessions_is_not_shifted_by_what_happens_between_pages(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    made = [f"s{n}" for n in range(8)]
    for session_id in made:
        await storage.turn(user, session_id)
    first = await storage.sessions.ListSessions(ListSessionsRequest(user_id=user, page_size=3))
    # The one whose key the token holds goes, one is new, and one of the first page changes.
    await _delete(other_storage, user, first.sessions[-1].session_id)
    await other_storage.turn(user, "new")
    await other_storage.turn(user, first.sessions[0].session_id)
    rest = await _listed(
        other_storage, ListSessionsRequest(user_id=user, page_size=3, page_token=first.next_page_token)
    )
    assert rest == ["s4", "s3", "s2", "s1", "s0"]


async def test_deleting_a_session_removes_all_that_belongs_to_it(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    asked = await storage.ask_back(user)
    await storage.turn(user, "other")
    assert await _delete(storage, user) == 2
    for call, reason in (
        (_get(other_storage, user), "SESSION_NOT_FOUND"),
        (
            other_storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s")),
            "SESSION_NOT_FOUND",
        ),
        (other_storage.runs.GetRun(GetRunRequest(user_id=user, run_id=asked.run.run_id)), "RUN_NOT_FOUND"),
        (
            other_storage.hitl.GetHitlTask(GetHitlTaskRequest(user_id=user, task_id=asked.opened_task.task_id)),
            "HITL_TASK_NOT_FOUND",
        ),
    ):
        assert (await refused(call)).reason == reason
    assert not (await other_storage.hitl.ListHitlTasks(ListHitlTasksRequest(user_id=user))).tasks
    assert await _listed(other_storage, ListSessionsRequest(user_id=user)) == ["other"]
    assert (await refused(_delete(other_storage, user))).reason == "SESSION_NOT_FOUND"


async def test_a_run_under_way_cannot_bring_its_deleted_session_back(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    begun = await storage.begin(user)
    await _delete(other_storage, user)
    renewal = RenewRunRequest(user_id=user, run_id=begun.run.run_id, fencing_token=begun.fencing_token)
    for call in (storage.runs.RenewRun(renewal), storage.finish(begun)):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
    assert (await refused(_get(storage, user))).reason == "SESSION_NOT_FOUND"


async def test_a_session_made_anew_under_an_old_id_is_another_one(storage: Storage, user: str) -> None:
    old = await storage.begin(user, message="old words")
    await _delete(storage, user)
    new = await storage.begin(user, message="new words", max_context_messages=10)
    assert new.session.uid != old.session.uid
    assert (new.run.human_position, len(new.context)) == (1, 0)
    assert (await refused(storage.finish(old, "old reply"))).reason == "RUN_NOT_FOUND"
    await storage.finish(new, "new reply")
    page = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    assert [message.content for message in page.messages] == ["new words", "new reply"]


async def test_deleting_at_the_same_time_as_a_turn_leaves_all_of_it_or_nothing(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    for n in range(10):
        session_id = f"s{n}"
        begun = await storage.begin(user, session_id)
        finish = storage.runs.FinishRun(finish_request(begun))
        await asyncio.gather(finish, _delete(other_storage, user, session_id), return_exceptions=True)
        assert (await refused(_get(storage, user, session_id))).reason == "SESSION_NOT_FOUND"
        run = storage.runs.GetRun(GetRunRequest(user_id=user, run_id=begun.run.run_id))
        assert (await refused(run)).reason == "RUN_NOT_FOUND"


async def test_first_turns_at_once_in_many_new_sessions_all_succeed(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    names = [unique("session") for _ in range(20)]
    await asyncio.gather(*((storage, other_storage)[n % 2].turn(user, name) for n, name in enumerate(names)))
    assert sorted(await _listed(storage, ListSessionsRequest(user_id=user, page_size=7))) == sorted(names)
