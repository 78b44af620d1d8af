"""How cached values are written for Redis: their label, a table of lengths, and the parts themselves.

What is in a value is never taken on trust: it names its owner, its session and what it was read at, and a
checksum covers it whole. A table and one join, instead of a message of messages, lets it be taken apart
without reading what is in it.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

from services.storage.store.cache.session_list import SessionList
from services.storage.store.cache.window import MessageWindow
from services.storage.store.encoded import EncodedMessage
from services.storage.store.results import SessionCursor

_FORM = b"askback\x01"
"""The version of what follows; a value of any other is read as none."""
_MESSAGES, _SESSIONS = b"m", b"s"

_HEAD = struct.Struct(f"<{len(_FORM)}sI")
_WINDOW = struct.Struct("<HHHqqI")
_MESSAGE = struct.Struct("<IIIi?")
_LIST = struct.Struct("<H?q?q?I")
_SESSION = struct.Struct("<qHI")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Unreadable(Exception):
    """No value of this form; the text says what gave it away, and nothing of what it holds."""


def pack_window(window: MessageWindow) -> bytes:
    names = [name.encode() for name in (window.user_id, window.session_id, window.uid)]
    label = _WINDOW.pack(*map(len, names), window.revision, window.message_count, len(window.messages))
    table = b"".join(
        _MESSAGE.pack(
            # A message without a trace is written once.
            0 if message.bare is message.whole else len(message.bare),
            len(message.whole),
            message.counted,
            message.trace_bytes,
            message.is_readable,
        )
        for message in window.messages
    )
    parts: list[bytes] = []
    for message in window.messages:
        if message.bare is not message.whole:
            parts.append(message.bare)
        parts.append(message.whole)
    return _sealed(_MESSAGES, (label, *names, table, *parts))


def unpack_window(value: bytes) -> MessageWindow:
    """Raises Unreadable."""
    reader = _Reader(_opened(_MESSAGES, value))
    *lengths, revision, message_count, count = reader.read(_WINDOW)
    user_id, session_id, uid = (reader.text(length) for length in lengths)
    rows = reader.table(_MESSAGE, count)
    parts = reader.parts([length for bare, whole, *_ in rows for length in (bare, whole)])
    reader.done()
    messages = tuple(
        EncodedMessage(bare or whole, whole, counted, trace_bytes, is_readable)
        for (_, _, counted, trace_bytes, is_readable), bare, whole in zip(rows, parts[::2], parts[1::2], strict=True)
    )
    return MessageWindow.holding(user_id, session_id, uid, revision, message_count, messages)


def pack_list(page: SessionList) -> bytes:
    user_id = page.user_id.encode()
    ids = [cursor.session_id.encode() for cursor in page.cursors]
    changes = page.changes_time
    label = _LIST.pack(
        len(user_id),
        page.full,
        page.revision,
        changes is not None,
        _microseconds(changes) if changes else 0,
        page.has_more,
        len(page.parts),
    )
    table = b"".join(
        _SESSION.pack(_microseconds(cursor.update_time), len(session_id), len(part))
        for cursor, session_id, part in zip(page.cursors, ids, page.parts, strict=True)
    )
    return _sealed(_SESSIONS, (label, user_id, table, *ids, *page.parts))


def unpack_list(value: bytes) -> SessionList:
    """Raises Unreadable."""
    reader = _Reader(_opened(_SESSIONS, value))
    user_length, full, revision, changes, changes_time, has_more, count = reader.read(_LIST)
    user_id = reader.text(user_length)
    rows = reader.table(_SESSION, count)
    ids = [reader.text(length) for _, length, _ in rows]
    parts = reader.parts([length for _, _, length in rows])
    reader.done()
    return SessionList(
        user_id=user_id,
        full=full,
        revision=revision,
        changes_time=_time(changes_time) if changes else None,
        has_more=has_more,
        cursors=tuple(SessionCursor(_time(time), id_) for (time, _, _), id_ in zip(rows, ids, strict=True)),
        parts=tuple(parts),
    )


def _sealed(kind: bytes, parts: Iterable[bytes]) -> bytes:
    body = b"".join((kind, *parts))
    return _HEAD.pack(_FORM, zlib.crc32(body)) + body


def _opened(kind: bytes, value: bytes) -> memoryview:
    if len(value) < _HEAD.size + len(kind):
        raise Unreadable("length")
    form, checksum = _HEAD.unpack_from(value)
    body = memoryview(value)[_HEAD.size :]
    if form != _FORM:
        raise Unreadable("form")
    if checksum != zlib.crc32(body):
        raise Unreadable("checksum")
    if body[: len(kind)] != kind:
        raise Unreadable("kind")
    return body[len(kind) :]


class _Reader:
    """Goes through a value's body once, from its beginning to its very end."""

    def __init__(self, body: memoryview):
        self._body = body
        self._at = 0

    def read(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self._next(form.size))

    def table(self, row: struct.Struct, count: int) -> list[tuple[Any, ...]]:
        return list(row.iter_unpack(self._next(row.size * count)))

    def text(self, length: int) -> str:
        try:
            return str(self._next(length), "utf-8")
        except UnicodeDecodeError:
            raise Unreadable("text") from None

    def parts(self, lengths: Sequence[int]) -> list[bytes]:
        body = bytes(self._next(sum(lengths)))
        return [body[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]

    def done(self) -> None:
        if self._at != len(self._body):
            raise Unreadable("length")

    def _next(self, length: int) -> memoryview:
        end = self._at + length
        if end > len(self._body):
            raise Unreadable("length")
        part, self._at = self._body[self._at : end], end
        return part


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _time(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND
