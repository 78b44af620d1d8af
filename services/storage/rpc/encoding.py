"""Replies that hold many messages or sessions, written as bytes.

Fields of a protobuf message may stand in any order and be joined: a message's trace is spliced in as it is
stored, and whatever the store has encoded already is sent as it is. Parsed, a reply is the same either way.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import structlog
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from askback.rag.v1 import trace_pb2
from askback.storage.v1 import session_pb2, session_service_pb2
from services.runtime import page_token
from services.runtime.page_token import PagedQuery
from services.storage.models import Message, MessageStatus, MessageType, Session
from services.storage.rpc import replies
from services.storage.rpc.fairness import Turns
from services.storage.store.encoded import EncodedMessages, EncodedSessions, MessageParts
from services.storage.store.results import LoadedSession, MessagePage, SessionCursor, SessionIdPage, SessionPage

_LENGTH_DELIMITED = 2

_log = structlog.get_logger()


class ReplyCodec:
    """The store's own form of messages and sessions is that of the replies that hold them."""

    def encode_message(self, message: Message) -> MessageParts:
        body = replies.message_without_trace(message).SerializeToString()
        bare = _delimited(body)
        if not message.trace:
            return MessageParts(bare, bare, is_readable=True)
        return MessageParts(bare, _delimited(body, _TRACE, message.trace), _has_readable_trace(message))

    def decode_message(self, bare: bytes, *, trace: bytes | None) -> Message:
        wire = session_pb2.Message.FromString(_undelimited(bare))
        return Message(
            position=wire.position,
            message_id=wire.message_id,
            type=MessageType(wire.type),
            status=MessageStatus(wire.status),
            content=wire.content,
            create_time=_moment(wire.create_time),
            run_id=wire.run_id,
            trace=trace,
            extra_json=wire.extra_json,
        )

    def encode_session(self, session: Session) -> bytes:
        return _delimited(replies.session(session).SerializeToString())

    def decode_session(self, part: bytes) -> Session:
        wire = session_pb2.Session.FromString(_undelimited(part))
        return Session(
            user_id=wire.user_id,
            session_id=wire.session_id,
            uid=wire.uid,
            title=wire.title,
            revision=wire.revision,
            message_count=wire.message_count,
            create_time=_moment(wire.create_time),
            update_time=_moment(wire.update_time),
            note=wire.note,
            note_through_position=wire.note_through_position,
            metadata=MessageToDict(wire.metadata),
            expire_time=_moment(wire.expire_time) if wire.HasField("expire_time") else None,
            active_run_id=wire.active_run_id,
            pending_hitl_task_id=wire.pending_hitl_task_id,
        )


async def loaded_session(loaded: LoadedSession) -> bytes:
    """A LoadSessionResponse."""
    head = session_service_pb2.LoadSessionResponse(
        session=replies.session(loaded.session), truncated=loaded.truncated
    ).SerializeToString()
    return _LOADED_MESSAGE.join((head, *await _message_parts(loaded.messages)))


async def message_page(query: PagedQuery, page: MessagePage) -> bytes:
    """A ListMessagesResponse."""
    head = session_service_pb2.ListMessagesResponse(
        next_page_token="" if page.next is None else page_token.encode(query, (page.next,)), revision=page.revision
    ).SerializeToString()
    return _LISTED_MESSAGE.join((head, *await _message_parts(page.messages)))


async def session_page(query: PagedQuery, page: SessionPage) -> bytes:
    """A ListSessionsResponse."""
    return _LISTED_SESSION.join((_session_head(query, page.next), *await _session_parts(page.sessions)))


def session_id_page(query: PagedQuery, page: SessionIdPage) -> bytes:
    """A ListSessionsResponse of ids alone."""
    ids = (session_pb2.Session(session_id=session_id).SerializeToString() for session_id in page.session_ids)
    return _LISTED_SESSION.join((_session_head(query, page.next), *map(_delimited, ids)))


def _session_head(query: PagedQuery, cursor: SessionCursor | None) -> bytes:
    token = "" if cursor is None else page_token.encode(query, (cursor.update_time, cursor.session_id))
    return session_service_pb2.ListSessionsResponse(next_page_token=token).SerializeToString()


async def _message_parts(messages: Sequence[Message]) -> Sequence[bytes]:
    if isinstance(messages, EncodedMessages):
        return messages.parts
    parts, turns = [], Turns()
    for message in messages:
        body = replies.message_without_trace(message).SerializeToString()
        if message.trace and _has_readable_trace(message):
            parts.append(_delimited(body, _TRACE, message.trace))
        else:
            parts.append(_delimited(body))
        await turns.pause()
    return parts


async def _session_parts(sessions: Sequence[Session]) -> Sequence[bytes]:
    if isinstance(sessions, EncodedSessions):
        return sessions.parts
    parts, turns = [], Turns()
    for session in sessions:
        parts.append(_delimited(replies.session(session).SerializeToString()))
        await turns.pause()
    return parts


def _has_readable_trace(message: Message) -> bool:
    """One that cannot be read would make the whole reply so."""
    try:
        trace_pb2.RagTrace.FromString(message.trace or b"")
    except DecodeError:
        _log.warning("trace_unreadable", message_id=message.message_id)
        return False
    return True


def _tag(field: int) -> bytes:
    return _varint(field << 3 | _LENGTH_DELIMITED)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _delimited(body: bytes, tag: bytes = b"", last: bytes = b"") -> bytes:
    """The message with its length before it; a last field of it comes with its tag, and without its length."""
    if not tag:
        return _varint(len(body)) + body
    length = _varint(len(last))
    return b"".join((_varint(len(body) + len(tag) + len(length) + len(last)), body, tag, length, last))


def _undelimited(part: bytes) -> bytes:
    start = 1
    while part[start - 1] > 0x7F:
        start += 1
    return part[start:]


def _moment(time: Timestamp) -> datetime:
    return time.ToDatetime(UTC)


_TRACE = _tag(session_pb2.Message.RAG_TRACE_FIELD_NUMBER)
_LOADED_MESSAGE = _tag(session_service_pb2.LoadSessionResponse.MESSAGES_FIELD_NUMBER)
_LISTED_MESSAGE = _tag(session_service_pb2.ListMessagesResponse.MESSAGES_FIELD_NUMBER)
_LISTED_SESSION = _tag(session_service_pb2.ListSessionsResponse.SESSIONS_FIELD_NUMBER)
