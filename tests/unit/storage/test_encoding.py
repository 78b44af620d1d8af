"""What is encoded once is decoded whole, and a reply written as bytes is the reply that protobuf would write."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from askback.rag.v1 import trace_pb2
from askback.storage.v1 import session_pb2, session_service_pb2
from services.runtime.page_token import PagedQuery
from services.storage.models import Message, MessageStatus, MessageType, Session
from services.storage.rpc import encoding, replies
from services.storage.store.encoded import EncodedMessage, EncodedMessages
from services.storage.store.results import LoadedSession, MessagePage, SessionCursor, SessionIdPage, SessionPage

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
SESSION = Session(
    user_id="u",
    session_id="s",
    uid="uid",
    title="title",
    revision=1,
    message_count=2,
    create_time=TIME,
    update_time=TIME + timedelta(days=1),
    note="note",
    note_through_position=3,
    metadata={"text": "é", "none": None, "list": [1, 0.5, True, {"deep": {}}]},
    expire_time=TIME + timedelta(days=2),
    active_run_id="run",
    pending_hitl_task_id="task",
)
MESSAGE = Message(
    position=300,
    message_id="m",
    type=MessageType.AI,
    status=MessageStatus.STOPPED,
    content="an answer",
    create_time=TIME,
    run_id="r",
    trace=trace_pb2.RagTrace(query="q").SerializeToString(),
    extra_json="{}",
)
UNREADABLE = replace(MESSAGE, position=301, trace=b"\xff\xff\xff\xff")
CODEC = encoding.ReplyCodec()
QUERY = PagedQuery("Method", "u")

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
messages = st.builds(
    Message,
    position=st.integers(1, 2**40),
    message_id=texts,
    type=st.sampled_from(MessageType),
    status=st.sampled_from(MessageStatus),
    content=st.one_of(texts, st.just("x" * 70_000)),
    create_time=st.integers(-(10**16), 10**17).map(lambda n: TIME + timedelta(microseconds=n)),
    run_id=texts,
    trace=st.one_of(st.none(), st.binary(max_size=300)),
    extra_json=texts,
)


@pytest.mark.parametrize("kept", [MESSAGE, SESSION], ids=["message", "session"])
def test_no_field_is_left_at_its_default_here(kept: Message | Session) -> None:
    """Or one that is added, and forgotten by the codec, would not show below."""
    assert all(getattr(kept, field.name) not in ("", 0, None) for field in fields(kept))


@given(messages)
def test_a_message_is_decoded_as_it_was_encoded(message: Message) -> None:
    encoded = EncodedMessage.of(message, CODEC)
    assert list(EncodedMessages([encoded], include_traces=True, codec=CODEC)) == [message]
    assert list(EncodedMessages([encoded], include_traces=False, codec=CODEC)) == [replace(message, trace=None)]


def test_a_session_is_decoded_as_it_was_encoded() -> None:
    assert CODEC.decode_session(CODEC.encode_session(SESSION)) == SESSION
    bare = replace(SESSION, metadata={}, note="", expire_time=None)
    assert CODEC.decode_session(CODEC.encode_session(bare)) == bare


@pytest.mark.parametrize("is_encoded", [False, True])
async def test_a_loaded_session_is_the_reply_that_protobuf_would_write(is_encoded: bool) -> None:
    """A trace that cannot be read is left out, with a warning, and takes nothing with it."""
    kept = [replace(MESSAGE, position=299, trace=None), MESSAGE, UNREADABLE, replace(MESSAGE, position=302, trace=b"")]
    with capture_logs() as logs:
        given = EncodedMessages([EncodedMessage.of(m, CODEC) for m in kept], True, CODEC) if is_encoded else kept
        reply = await encoding.loaded_session(LoadedSession(session=SESSION, messages=given, truncated=True))
    assert [line["event"] for line in logs] == ["trace_unreadable"]
    expected = session_service_pb2.LoadSessionResponse(
        session=replies.session(SESSION), messages=map(replies.message, kept), truncated=True
    )
    assert session_service_pb2.LoadSessionResponse.FromString(reply) == expected
    assert [message.HasField("rag_trace") for message in expected.messages] == [False, True, False, False]


async def test_pages_are_the_replies_that_protobuf_would_write() -> None:
    page = await encoding.message_page(QUERY, MessagePage(messages=[MESSAGE], next=300, revision=7))
    told = session_service_pb2.ListMessagesResponse.FromString(page)
    assert (list(told.messages), told.revision, bool(told.next_page_token)) == ([replies.message(MESSAGE)], 7, True)
    cursor = SessionCursor(TIME, "s")
    sessions = await encoding.session_page(QUERY, SessionPage(sessions=[SESSION, SESSION], next=cursor))
    listed = session_service_pb2.ListSessionsResponse.FromString(sessions)
    assert (list(listed.sessions), bool(listed.next_page_token)) == ([replies.session(SESSION)] * 2, True)
    ids = encoding.session_id_page(QUERY, SessionIdPage(session_ids=["a", "b" * 200], next=None))
    assert session_service_pb2.ListSessionsResponse.FromString(ids) == session_service_pb2.ListSessionsResponse(
        sessions=[session_pb2.Session(session_id="a"), session_pb2.Session(session_id="b" * 200)]
    )


async def test_an_empty_page_is_an_empty_reply() -> None:
    assert await encoding.session_page(QUERY, SessionPage(sessions=[], next=None)) == b""
