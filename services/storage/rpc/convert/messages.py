"""Messages on their way in: of a whole history, for a session's end, and as the reply of a run."""

from collections.abc import Sequence

from askback.rag.v1 import trace_pb2
from askback.storage.v1 import session_pb2, session_service_pb2
from services.runtime.errors import TooLarge
from services.storage.models import REPLY_STATUS, MessageStatus, MessageType, NewMessage, RunStatus
from services.storage.rpc.checks import Checks
from services.storage.rpc.convert.fields import (
    by_number,
    expected_revision,
    request_hash_in_turns,
    session_of,
)
from services.storage.rpc.fairness import Turns
from services.storage.rpc.trace import MAX_TRACE_BYTES, MAX_TRACE_PARTS, bounded, has_too_many_parts, normalized
from services.storage.store.commands import AppendMessages, SaveSession

MAX_CONTENT_BYTES = 1_024 * 1_024
MAX_APPENDED = 1_000
MAX_SAVED = 100_000
# Its reply holds the same messages, with what the service adds to them, and may be 16 MiB.
MAX_APPEND_BYTES = 15 * 1_024 * 1_024

_TYPES = by_number(MessageType)
_STATUSES: dict[int, MessageStatus | None] = {0: None, **by_number(MessageStatus)}


async def save_session(request: session_service_pb2.SaveSessionRequest) -> SaveSession:
    checks, turns = Checks(), Turns()
    user_id, session_id = session_of(checks, request)
    if len(request.messages) > MAX_SAVED:
        checks.refuse("messages", f"must be at most {MAX_SAVED:,} messages")
        checks.done()
    saved = SaveSession(
        user_id=user_id,
        session_id=session_id,
        messages=await _messages(checks, request.messages, turns),
        metadata=checks.metadata("metadata", request.metadata) if request.HasField("metadata") else {},
        expected_revision=expected_revision(checks, request),
        request_id=checks.optional_name("request_id", request.request_id),
        request_hash=await request_hash_in_turns(request, turns) if request.request_id else b"",
    )
    checks.done()
    return saved


async def append_messages(request: session_service_pb2.AppendMessagesRequest) -> AppendMessages:
    """Raises TooLarge too."""
    checks, turns = Checks(), Turns()
    user_id, session_id = session_of(checks, request)
    if not 1 <= len(request.messages) <= MAX_APPENDED:
        checks.refuse("messages", f"must be 1 to {MAX_APPENDED:,} messages")
        checks.done()
    if (size := request.ByteSize()) > MAX_APPEND_BYTES:
        raise TooLarge("a request to append", limit=MAX_APPEND_BYTES, actual=size)
    appended = AppendMessages(
        user_id=user_id,
        session_id=session_id,
        messages=await _messages(checks, request.messages, turns),
        expected_revision=expected_revision(checks, request),
        request_id=checks.optional_name("request_id", request.request_id),
        request_hash=await request_hash_in_turns(request, turns) if request.request_id else b"",
    )
    checks.done()
    return appended


async def _messages(checks: Checks, given: Sequence[session_pb2.Message], turns: Turns) -> tuple[NewMessage, ...]:
    read: list[NewMessage] = []
    seen: set[str] = set()
    for place, message in enumerate(given):
        field = f"messages[{place}]"
        read.append(_message(checks, field, message))
        if message.message_id:
            if message.message_id in seen:
                checks.refuse(f"{field}.message_id", "must not come twice in one request")
            seen.add(message.message_id)
        await turns.pause()
    return tuple(read)


def _message(checks: Checks, field: str, given: session_pb2.Message) -> NewMessage:
    return NewMessage(
        type=checks.choice(f"{field}.type", given.type, _TYPES, otherwise=MessageType.HUMAN),
        message_id=checks.optional_name(f"{field}.message_id", given.message_id) if given.message_id else "",
        content=checks.text(f"{field}.content", given.content, at_most=MAX_CONTENT_BYTES),
        status=checks.choice(f"{field}.status", given.status, _STATUSES, otherwise=None) if given.status else None,
        create_time=(checks.time(f"{field}.create_time", given.create_time) if given.HasField("create_time") else None),
        run_id=checks.optional_name(f"{field}.run_id", given.run_id) if given.run_id else "",
        trace=_trace(checks, f"{field}.rag_trace", given.rag_trace) if given.HasField("rag_trace") else None,
        extra_json=checks.json_object(f"{field}.extra_json", given.extra_json) if given.extra_json else "",
    )


def reply(checks: Checks, given: session_pb2.Message, status: RunStatus) -> NewMessage:
    checks.choice(
        "reply.type", given.type or MessageType.AI, {MessageType.AI: MessageType.AI}, otherwise=MessageType.AI
    )
    follows = REPLY_STATUS[status]
    if given.status not in (session_pb2.MESSAGE_STATUS_UNSPECIFIED, follows):
        checks.refuse("reply.status", f"must be {follows.name}, as the run is {status.name}, or left out")
    return NewMessage(
        type=MessageType.AI,
        message_id=checks.optional_name("reply.message_id", given.message_id),
        content=checks.text("reply.content", given.content, at_most=MAX_CONTENT_BYTES),
        trace=_trace(checks, "reply.rag_trace", given.rag_trace) if given.HasField("rag_trace") else None,
        extra_json=checks.json_object("reply.extra_json", given.extra_json),
    )


def _trace(checks: Checks, field: str, given: trace_pb2.RagTrace) -> bytes:
    if has_too_many_parts(given):
        checks.refuse(field, f"must be at most {MAX_TRACE_PARTS:,} chunks and other parts")
        return b""
    kept = normalized(given)
    encoded = kept.SerializeToString()
    if len(encoded) > MAX_TRACE_BYTES:
        encoded = bounded(kept).SerializeToString()
    if len(encoded) > MAX_TRACE_BYTES:
        checks.refuse(field, f"must be at most {MAX_TRACE_BYTES:,} bytes without its texts")
    return encoded
