"""Messages, changes and events that may not be are refused by the names of their fields, and none is stored."""

from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from askback.rag.v1 import trace_pb2
from askback.storage.v1.run_service_pb2 import AppendRunEventsRequest, GetRunRequest, RunEvent
from askback.storage.v1.session_pb2 import Message, Session
from askback.storage.v1.session_service_pb2 import (
    AppendMessagesRequest,
    ListSessionsRequest,
    SaveSessionRequest,
    UpdateSessionRequest,
)
from tests.integration.storage.harness import Storage, ai, human, refused

LONG = "x" * 129
TOO_MANY_PARTS = trace_pb2.RagTrace(retrieved_chunks=[trace_pb2.RetrievedChunk(filename="x")] * 10_001)
NAMES_ALONE = trace_pb2.RagTrace(retrieved_chunks=[trace_pb2.RetrievedChunk(filename="x" * 60)] * 9_000)

BAD_MESSAGES = [
    ([Message(content="of no type")], ["messages[0].type"]),
    ([human("fine"), Message(type=5, content="x")], ["messages[1].type"]),  # type: ignore[arg-type]
    ([human("fine"), human("a\0b")], ["messages[1].content"]),
    ([human("x" * 1_048_577)], ["messages[0].content"]),
    ([human("知" * 349_526)], ["messages[0].content"]),
    ([human("x", message_id=LONG)], ["messages[0].message_id"]),
    ([human("x", message_id="\0")], ["messages[0].message_id"]),
    ([human("x", message_id="m"), ai("y"), ai("z", message_id="m")], ["messages[2].message_id"]),
    ([human("x", run_id="\n")], ["messages[0].run_id"]),
    ([human("x", status=9)], ["messages[0].status"]),
    ([human("x", extra_json="[]")], ["messages[0].extra_json"]),
    ([human("x", extra_json='{"k": "\\u0000"}')], ["messages[0].extra_json"]),
    ([human("x", extra_json='{"k":' + "[" * 64 + "]" * 64 + "}")], ["messages[0].extra_json"]),
    ([human("x", extra_json='{"k": "' + "x" * 65_536 + '"}')], ["messages[0].extra_json"]),
    ([human("x", create_time=Timestamp(seconds=253_402_300_800))], ["messages[0].create_time"]),
    ([human("x", create_time=Timestamp(seconds=-62_135_596_801))], ["messages[0].create_time"]),
    ([human("x", create_time=Timestamp(seconds=2**63 - 1))], ["messages[0].create_time"]),
    ([human("x", create_time=Timestamp(nanos=-1))], ["messages[0].create_time"]),
    ([human("x", create_time=Timestamp(nanos=1_000_000_000))], ["messages[0].create_time"]),
    ([human("x"), ai("y", rag_trace=TOO_MANY_PARTS)], ["messages[1].rag_trace"]),
    ([human("x"), ai("y", rag_trace=NAMES_ALONE)], ["messages[1].rag_trace"]),
    (
        [Message(content="\0", message_id=LONG, extra_json="{"), human("x"), ai("\0")],
        [
            *("messages[0].type", "messages[0].message_id", "messages[0].content", "messages[0].extra_json"),
            "messages[2].content",
        ],
    ),
]


@pytest.mark.parametrize(("messages", "fields"), BAD_MESSAGES, ids=lambda value: None)
async def test_messages_that_may_not_be_are_neither_appended_nor_saved(
    storage: Storage, user: str, messages: list[Message], fields: list[str]
) -> None:
    names: dict[str, Any] = {"user_id": user, "session_id": "s", "messages": messages}
    for call in (
        storage.sessions.AppendMessages(AppendMessagesRequest(**names), timeout=20),
        storage.sessions.SaveSession(SaveSessionRequest(**names), timeout=20),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert refusal.fields == fields
    assert not (await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))).sessions


@pytest.mark.parametrize("count", [0, 1_001])
async def test_an_append_is_of_1_to_1000_messages(storage: Storage, user: str, count: int) -> None:
    request = AppendMessagesRequest(user_id=user, session_id="s", messages=[human("\0")] * count)
    assert (await refused(storage.sessions.AppendMessages(request))).fields == ["messages"]


async def test_a_flood_of_messages_is_told_by_its_number(storage: Storage, user: str) -> None:
    request = SaveSessionRequest(user_id=user, session_id="s", messages=[human("\0")] * 100_001)
    assert (await refused(storage.sessions.SaveSession(request))).fields == ["messages"]


async def test_the_first_and_the_last_time_there_is_are_taken(storage: Storage, user: str) -> None:
    first, last = Timestamp(seconds=-62_135_596_800), Timestamp(seconds=253_402_300_799, nanos=999_999_999)
    appended = await storage.append(user, "s", *(human("x", create_time=time) for time in (first, last)))
    assert await storage.messages(user) == list(appended.messages)
    kept = [message.create_time for message in appended.messages]
    # To the microsecond, and within one of the ends.
    assert [(time.seconds, time.nanos) for time in kept] == [(first.seconds, 1_000), (last.seconds, 999_998_000)]


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"request_id": LONG}, ["request_id"]),
        ({"expected_revision": -1}, ["expected_revision"]),
        ({"metadata": {"a\0b": 1}}, ["metadata"]),
        ({"metadata": {"k": float("inf")}}, ["metadata"]),
        ({"metadata": {"k": "x" * 32_768}}, ["metadata"]),
        ({"metadata": {str(n): n for n in range(257)}}, ["metadata"]),
    ],
    ids=str,
)
async def test_a_save_that_may_not_be_stores_nothing(
    storage: Storage, user: str, given: dict[str, Any], fields: list[str]
) -> None:
    request = SaveSessionRequest(user_id=user, session_id="s", messages=[human("x")], **given)
    refusal = await refused(storage.sessions.SaveSession(request))
    assert (refusal.code, refusal.reason, refusal.fields) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        fields,
    )
    assert not (await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))).sessions


def _update(session: dict[str, Any], *paths: str, **fields: Any) -> dict[str, Any]:
    return {"session": session, "update_mask": FieldMask(paths=paths), **fields}


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"session": {"user_id": "", "title": "t"}}, ["session.user_id"]),
        ({"session": {"session_id": LONG, "title": "t"}}, ["session.session_id"]),
        ({"session": {"title": "x" * 1_025}}, ["session.title"]),
        ({"session": {"title": "a\0b"}}, ["session.title"]),
        ({"session": {"note": "x" * 32_769, "note_through_position": 1}}, ["session.note"]),
        ({"session": {"note": "a\0b", "note_through_position": 1}}, ["session.note"]),
        ({"session": {"note": "n", "note_through_position": -1}}, ["session.note_through_position"]),
        ({"session": {"note_through_position": 1}}, ["session.note_through_position"]),
        ({"session": {"expire_time": Timestamp(nanos=-5)}}, ["session.expire_time"]),
        ({"session": {"expire_time": Timestamp(seconds=2**62)}}, ["session.expire_time"]),
        ({"session": {"metadata": {"k": "a\0b"}}}, ["session.metadata"]),
        ({"session": {}}, ["session"]),
        ({"session": {"revision": 7, "active_run_id": "r"}}, ["session"]),
        ({"session": {"title": "t"}, "expected_revision": -1}, ["expected_revision"]),
        ({"session": {"title": "t"}, "request_id": "\t"}, ["request_id"]),
        (_update({"title": "t"}, "revision"), ["update_mask"]),
        (_update({"title": "t"}, "title", "metadata.key"), ["update_mask"]),
        (_update({"title": "t"}, "*"), ["update_mask"]),
        (_update({"title": "t"}, ""), ["update_mask"]),
        (_update({"title": "t"}, "session.title"), ["update_mask"]),
        (_update({"note": "n"}, "note_through_position"), ["session.note_through_position"]),
    ],
    ids=str,
)
async def test_an_update_that_may_not_be_changes_nothing(
    storage: Storage, user: str, given: dict[str, Any], fields: list[str]
) -> None:
    before = (await storage.append(user)).session
    session = Session(**{"user_id": user, "session_id": "s"} | given["session"])
    rest = {name: value for name, value in given.items() if name != "session"}
    refusal = await refused(storage.sessions.UpdateSession(UpdateSessionRequest(session=session, **rest)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == fields
    assert await storage.session(user) == before


async def test_an_unknown_path_of_a_mask_is_named_and_any_other_text_is_not(storage: Storage, user: str) -> None:
    for path, told in (("active_run_id", "active_run_id"), ("my secret", "a path")):
        session = Session(user_id=user, session_id="s", title="t")
        request = UpdateSessionRequest(session=session, update_mask=FieldMask(paths=[path]))
        refusal = await refused(storage.sessions.UpdateSession(request))
        assert refusal.text.endswith(f"not {told}")
        assert "secret" not in str(refusal)


@pytest.mark.parametrize(
    ("events", "fields"),
    [
        ([], ["events"]),
        ([RunEvent(sequence=n + 1) for n in range(1_001)], ["events"]),
        ([RunEvent()], ["events[0].sequence"]),
        ([RunEvent(sequence=-1)], ["events[0].sequence"]),
        ([RunEvent(sequence=2), RunEvent(sequence=2)], ["events[1].sequence"]),
        (
            [RunEvent(sequence=3), RunEvent(sequence=1), RunEvent(sequence=3)],
            ["events[1].sequence", "events[2].sequence"],
        ),
        ([RunEvent(sequence=1, payload=b"x" * 1_048_577)], ["events[0].payload"]),
        ([RunEvent(sequence=1, reply_text="a\0b")], ["events[0].reply_text"]),
        ([RunEvent(sequence=1, reply_text="x" * 65_537)], ["events[0].reply_text"]),
        ([RunEvent(sequence=1, last=True), RunEvent(sequence=2)], ["events[0].last"]),
    ],
    ids=lambda value: None,
)
async def test_events_that_may_not_be_are_refused_by_their_place(
    storage: Storage, user: str, events: list[RunEvent], fields: list[str]
) -> None:
    begun = await storage.begin(user)
    request = AppendRunEventsRequest(
        user_id=user, run_id=begun.run.run_id, fencing_token=begun.fencing_token, events=events
    )
    refusal = await refused(storage.runs.AppendRunEvents(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields == fields
    run = (await storage.runs.GetRun(GetRunRequest(user_id=user, run_id=begun.run.run_id))).run
    assert run.last_event_sequence == 0


async def test_metadata_whose_numbers_are_long_when_written_out_is_refused(storage: Storage, user: str) -> None:
    """PostgreSQL writes each digit: 32 KiB of the shortest form would become 1.5 MB."""
    metadata = {f"k{place}": [5e-324] * 40 for place in range(100)}
    given = Struct()
    given.update(metadata)
    request = SaveSessionRequest(user_id=user, session_id="s", metadata=given)
    refusal = await refused(storage.sessions.SaveSession(request, timeout=20))
    assert (refusal.reason, refusal.fields) == ("INVALID_FIELD", ["metadata"])
