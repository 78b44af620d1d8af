"""A request that holds what it may not is refused by the names of its fields, and stores nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2
from askback.storage.v1.hitl_service_pb2 import CancelHitlTaskRequest, GetHitlTaskRequest, ListHitlTasksRequest
from askback.storage.v1.run_service_pb2 import (
    AppendRunEventsRequest,
    BeginRunRequest,
    BeginRunResponse,
    CancelRunRequest,
    FinishRunRequest,
    GetRunRequest,
    ListRunsRequest,
    RenewRunRequest,
    RunEvent,
)
from askback.storage.v1.session_pb2 import MESSAGE_STATUS_STOPPED, MESSAGE_TYPE_HUMAN, Message
from askback.storage.v1.session_service_pb2 import (
    AppendMessagesRequest,
    DeleteMessagesRequest,
    DeleteSessionRequest,
    DeleteUserDataRequest,
    GetMessageRequest,
    GetSessionRequest,
    ListMessagesRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    SaveSessionRequest,
)
from tests.integration.storage.harness import Storage, draft, finish_request, human, refused

LONG = "x" * 129
BAD_NAMES = ["", LONG, "a\0b", "a\tb"]


def _cases(**cases: Any) -> list[Any]:
    return [pytest.param(given, [field.replace("__", ".")], id=field) for field, given in cases.items()]


_append = partial(AppendMessagesRequest, messages=[human("a question")])
_append_events = partial(AppendRunEventsRequest, events=[RunEvent(sequence=1)])


@pytest.mark.parametrize("bad", BAD_NAMES)
@pytest.mark.parametrize(
    ("method", "request_type", "names"),
    [
        ("sessions.GetSession", GetSessionRequest, ["user_id", "session_id"]),
        ("sessions.LoadSession", LoadSessionRequest, ["user_id", "session_id"]),
        ("sessions.ListSessions", ListSessionsRequest, ["user_id"]),
        ("sessions.ListMessages", ListMessagesRequest, ["user_id", "session_id"]),
        ("sessions.GetMessage", GetMessageRequest, ["user_id", "session_id", "message_id"]),
        ("sessions.DeleteSession", DeleteSessionRequest, ["user_id", "session_id"]),
        ("runs.RenewRun", RenewRunRequest, ["user_id", "run_id"]),
        ("sessions.SaveSession", SaveSessionRequest, ["user_id", "session_id"]),
        ("sessions.AppendMessages", _append, ["user_id", "session_id"]),
        ("sessions.DeleteMessages", DeleteMessagesRequest, ["user_id", "session_id"]),
        ("sessions.DeleteUserData", DeleteUserDataRequest, ["user_id"]),
        ("runs.GetRun", GetRunRequest, ["user_id", "run_id"]),
        ("runs.AppendRunEvents", _append_events, ["user_id", "run_id"]),
        ("runs.ListRuns", ListRunsRequest, ["user_id", "session_id"]),
        ("runs.CancelRun", CancelRunRequest, ["user_id", "run_id"]),
        ("hitl.CancelHitlTask", CancelHitlTaskRequest, ["user_id", "task_id"]),
        ("hitl.GetHitlTask", GetHitlTaskRequest, ["user_id", "task_id"]),
        ("hitl.ListHitlTasks", ListHitlTasksRequest, ["user_id"]),
    ],
)
async def test_each_bad_name_is_told_and_all_at_once(
    storage: Storage, method: str, request_type: Callable[..., Any], names: list[str], bad: str
) -> None:
    service, name = method.split(".")
    call = getattr(getattr(storage, service), name)
    refusal = await refused(call(request_type(**dict.fromkeys(names, bad)), timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == names
    for wrong in names:
        given = {each: bad if each == wrong else "fine" for each in names}
        assert (await refused(call(request_type(**given), timeout=20))).fields == [wrong]


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        *_cases(
            user_id={"user_id": ""},
            session_id={"session_id": LONG},
            request_id={"request_id": "\n"},
            holder_id={"holder_id": LONG},
            answers_task_id={"answers_task_id": "\0"},
            title_if_new={"title_if_new": "a\0b"},
            conflict_policy={"conflict_policy": 9},
            pending_hitl_policy={"pending_hitl_policy": -1},
            max_context_messages={"max_context_messages": 101},
            retries_run_id={"retries_run_id": LONG, "message": ""},
            lease={"lease": Duration(seconds=4)},
        ),
        ({"lease": Duration(seconds=601)}, ["lease"]),
        ({"lease": Duration()}, ["lease"]),
        ({"max_context_messages": -1}, ["max_context_messages"]),
        ({"title_if_new": "x" * 1_025}, ["title_if_new"]),
        ({"message": ""}, ["message"]),
        ({"message": "a\0b"}, ["message"]),
        ({"message": "x" * 32_769}, ["message"]),
        ({"message": "知" * 10_923}, ["message"]),
        ({"message": "", "session_id": LONG, "holder_id": "\0"}, ["session_id", "message", "holder_id"]),
        ({"retries_run_id": "a run"}, ["message"]),
        ({"retries_run_id": "a run", "message": "", "answers_task_id": "a task"}, ["answers_task_id"]),
    ],
)
async def test_a_run_that_may_not_begin_stores_nothing(
    storage: Storage, user: str, given: dict[str, Any], fields: list[str]
) -> None:
    asked: dict[str, Any] = {"user_id": user, "session_id": "s", "message": "a question"}
    refusal = await refused(storage.runs.BeginRun(BeginRunRequest(**asked | given), timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == fields
    assert not (await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))).sessions


@pytest.mark.parametrize("words", ["a\0secret", "secret" * 10_000])
async def test_an_error_never_repeats_what_the_user_said(storage: Storage, user: str, words: str) -> None:
    refusal = await refused(storage.begin(user, message=words))
    assert "secret" not in str(refusal)


def _asked(**fields: Any) -> dict[str, Any]:
    return {"status": run_pb2.RUN_STATUS_AWAITING_INPUT, "opened_task": draft(**fields)}


def _resume(**fields: Any) -> dict[str, Any]:
    return _asked(resume_state=trace_pb2.HitlResumeState(**fields))


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        *_cases(
            user_id={"user_id": LONG},
            run_id={"run_id": ""},
            status={"status": run_pb2.RUN_STATUS_UNSPECIFIED},
            reply__content={"reply": Message(content="a\0b")},
            reply__message_id={"reply": Message(message_id=LONG)},
            reply__type={"reply": Message(type=MESSAGE_TYPE_HUMAN)},
            reply__status={"reply": Message(status=MESSAGE_STATUS_STOPPED)},
            reply__extra_json={"reply": Message(extra_json="[]")},
            metadata={"metadata": {"deep": [{"nul": "a\0b"}]}},
            opened_task={"opened_task": draft()},
            error={"error": run_pb2.RunError(code=14)},
            opened_task__original_question=_asked(original_question=""),
            opened_task__prompt=_asked(prompt=""),
            opened_task__kind=_asked(kind=hitl_pb2.HITL_KIND_UNSPECIFIED),
            opened_task__options=_asked(options=["an option"] * 21),
            opened_task__answers=_asked(answers=["an answer"] * 101),
            opened_task__expire_after=_asked(expire_after=Duration(seconds=-1)),
            opened_task__resume_state__route=_resume(route=99),
            opened_task__resume_state__question=_resume(question="a\0b"),
            opened_task__resume_state__sub_questions=_resume(sub_questions=["one"] * 5),
            opened_task__resume_state__rewrite_count=_resume(rewrite_count=-1),
        ),
        ({"status": run_pb2.RUN_STATUS_RUNNING}, ["status"]),
        ({"status": run_pb2.RUN_STATUS_QUEUED}, ["status"]),
        ({"status": 99}, ["status"]),
        ({"status": run_pb2.RUN_STATUS_AWAITING_INPUT}, ["opened_task"]),
        ({"reply": Message(content="x" * 1_048_577)}, ["reply.content"]),
        ({"reply": Message(extra_json='{"k": "' + "x" * 65_536 + '"}')}, ["reply.extra_json"]),
        ({"metadata": {"k": "x" * 32_768}}, ["metadata"]),
        ({"metadata": {str(n): n for n in range(257)}}, ["metadata"]),
        ({"metadata": {"a\0b": 1}}, ["metadata"]),
        (_asked(options=["fine", "a\0b", "x" * 1_025]), ["opened_task.options[1]", "opened_task.options[2]"]),
        (_asked(options=["one", "two", "three", ""]), ["opened_task.options[3]"]),
        (_asked(answers=["x" * 32_769]), ["opened_task.answers[0]"]),
        (_asked(prompt="x" * 32_769), ["opened_task.prompt"]),
        (
            {"status": run_pb2.RUN_STATUS_FAILED, "error": run_pb2.RunError(code=17, reason="not a reason")},
            ["error.reason", "error.code"],
        ),
        ({"usage": run_pb2.Usage(input_tokens=-1, model_calls=-1)}, ["usage.input_tokens", "usage.model_calls"]),
        (
            {"reply": Message(content="\0", extra_json="{"), "metadata": {"k": float("nan")}},
            ["reply.content", "reply.extra_json", "metadata"],
        ),
    ],
)
async def test_a_finish_that_may_not_be_stores_nothing_and_can_be_mended(
    storage: Storage, user: str, given: dict[str, Any], fields: list[str]
) -> None:
    begun = await storage.begin(user)
    refusal = await refused(storage.runs.FinishRun(_finish(begun, given), timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == fields
    finished = await storage.finish(begun)
    assert (finished.session.message_count, finished.session.revision) == (2, 2)


def _finish(begun: BeginRunResponse, given: dict[str, Any]) -> FinishRunRequest:
    names = {name: given[name] for name in ("user_id", "run_id") if name in given}
    request = finish_request(begun, **{name: value for name, value in given.items() if name not in names})
    request.MergeFrom(FinishRunRequest(**names))
    for name, value in names.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize(("count", "name"), [(9_000, "x" * 60), (10_001, "x")])
async def test_a_trace_that_names_alone_make_too_large_is_refused(
    storage: Storage, user: str, count: int, name: str
) -> None:
    chunks = [trace_pb2.RetrievedChunk(filename=name)] * count
    reply = Message(content="x", rag_trace=trace_pb2.RagTrace(retrieved_chunks=chunks))
    refusal = await refused(storage.finish(await storage.begin(user), reply=reply))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["reply.rag_trace"])


async def test_metadata_too_deep_to_be_read_back_is_refused(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    for levels, fields in ((33, ["metadata"]), (60, ["request"])):
        deep: dict[str, Any] = {}
        for _ in range(levels):
            deep = {"k": deep}
        refusal = await refused(storage.finish(begun, metadata=deep))
        assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", fields)


@pytest.mark.parametrize(
    ("method", "request_type", "given", "fields"),
    [
        ("sessions.ListSessions", ListSessionsRequest, {"page_size": -1, "view": 9}, ["page_size", "view"]),
        ("sessions.ListMessages", ListMessagesRequest, {"session_id": "s", "page_size": -1}, ["page_size"]),
        ("sessions.LoadSession", LoadSessionRequest, {"session_id": "s", "max_messages": -1}, ["max_messages"]),
        ("sessions.DeleteSession", DeleteSessionRequest, {"session_id": "s", "request_id": LONG}, ["request_id"]),
        ("hitl.ListHitlTasks", ListHitlTasksRequest, {"page_size": -1, "state": 6}, ["state", "page_size"]),
        ("hitl.ListHitlTasks", ListHitlTasksRequest, {"session_id": LONG}, ["session_id"]),
        ("hitl.CancelHitlTask", CancelHitlTaskRequest, {"task_id": "t", "request_id": LONG}, ["request_id"]),
        ("runs.ListRuns", ListRunsRequest, {"session_id": "s", "page_size": -1}, ["page_size"]),
        ("sessions.DeleteUserData", DeleteUserDataRequest, {"request_id": "\n"}, ["request_id"]),
        (
            "sessions.DeleteMessages",
            DeleteMessagesRequest,
            {"session_id": "s", "after_position": -1, "expected_revision": -1, "request_id": LONG},
            ["after_position", "expected_revision", "request_id"],
        ),
    ],
)
async def test_a_read_or_delete_that_asks_for_what_it_may_not_is_refused(
    storage: Storage, method: str, request_type: Callable[..., Any], given: dict[str, Any], fields: list[str]
) -> None:
    service, name = method.split(".")
    call = getattr(getattr(storage, service), name)
    refusal = await refused(call(request_type(user_id="u", **given), timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == fields


async def test_what_is_at_its_limit_is_taken(storage: Storage) -> None:
    name = "\N{GRINNING FACE}" * 128
    begun = await storage.runs.BeginRun(
        BeginRunRequest(
            user_id=name,
            session_id=name,
            request_id=name,
            holder_id=name,
            message="知" * 10_922 + "xx",
            conflict_policy=run_pb2.CONFLICT_POLICY_REJECT,
            lease=Duration(seconds=5),
            max_context_messages=100,
        ),
        timeout=20,
    )
    reply = Message(content="x" * 1_048_576, message_id="\N{HUNDRED POINTS SYMBOL}" * 128, extra_json='{"k": 1}')
    finished = await storage.finish(begun, reply=reply, **_asked(options=["x" * 1_024] * 20, answers=["知"] * 100))
    assert len(finished.reply.content) == 1_048_576
    assert finished.session.session_id == name
    page = await storage.sessions.ListSessions(ListSessionsRequest(user_id=name, page_size=1))
    assert page.sessions[0].session_id == name
    await storage.begin(name, "another")
    request = ListSessionsRequest(user_id=name, page_size=1)
    request.page_token = (await storage.sessions.ListSessions(request)).next_page_token
    assert [each.session_id for each in (await storage.sessions.ListSessions(request)).sessions] == [name]
