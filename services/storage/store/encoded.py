"""Messages and sessions in the form that callers are sent, so that what is read again is not built again.

How they are written is the codec's affair. A part is one message or session as it stands in a reply's list,
with its length before it; a list's parts are joined, and never parsed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import NamedTuple, Protocol, TypeVar, overload

from services.storage.models import Message, Session
from services.storage.store.base import MESSAGE_OVERHEAD_BYTES

T = TypeVar("T", covariant=True)

NO_TRACE = -1


class MessageParts(NamedTuple):
    """One message without its trace, and with it; the same object twice where it has none.

    `whole` ends with the trace as it is stored. Unless `is_readable` that is no trace any more, and `whole` is
    not to be sent.
    """

    bare: bytes
    whole: bytes
    is_readable: bool


class Codec(Protocol):
    """How messages and sessions are written in a reply."""

    def encode_message(self, message: Message) -> MessageParts: ...

    def decode_message(self, bare: bytes, *, trace: bytes | None) -> Message: ...

    def encode_session(self, session: Session) -> bytes: ...

    def decode_session(self, part: bytes) -> Session: ...


class EncodedMessage(NamedTuple):
    """A message's parts, with what a bounded read counts them for."""

    bare: bytes
    whole: bytes
    counted: int
    """Without its trace."""
    trace_bytes: int
    """NO_TRACE where it has none."""
    is_readable: bool

    @classmethod
    def of(cls, message: Message, codec: Codec) -> "EncodedMessage":
        parts = codec.encode_message(message)
        trace_bytes = NO_TRACE if message.trace is None else len(message.trace)
        return cls(parts.bare, parts.whole, counted_bytes(message), trace_bytes, parts.is_readable)

    @property
    def counted_whole(self) -> int:
        return self.counted + max(self.trace_bytes, 0)

    @property
    def memory_bytes(self) -> int:
        """With what its parts are wrapped in."""
        wrapping = getsizeof(self) + getsizeof(self.counted) + getsizeof(self.trace_bytes)
        return wrapping + getsizeof(self.whole) + (0 if self.bare is self.whole else getsizeof(self.bare))

    @property
    def trace(self) -> bytes | None:
        if self.trace_bytes == NO_TRACE:
            return None
        return self.whole[len(self.whole) - self.trace_bytes :]


def counted_bytes(message: Message) -> int:
    """What every bounded read counts a message for, without its trace."""
    texts = (message.content, message.extra_json, message.message_id, message.run_id)
    return MESSAGE_OVERHEAD_BYTES + sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


class _Decoded(Sequence[T]):
    """Elements that are made when they are looked at."""

    __slots__ = ()

    def _at(self, place: int) -> T:
        raise IndexError(place)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...

    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        places = range(len(self))[place]
        return self._at(places) if isinstance(places, int) else tuple(map(self._at, places))


@dataclass(frozen=True, slots=True, eq=False)
class EncodedMessages(_Decoded[Message]):
    """Messages that are ready to be sent."""

    encoded: Sequence[EncodedMessage]
    include_traces: bool
    codec: Codec

    @property
    def parts(self) -> list[bytes]:
        """What a reply holds of them, in order."""
        if self.include_traces:
            return [message.whole if message.is_readable else message.bare for message in self.encoded]
        return [message.bare for message in self.encoded]

    def __len__(self) -> int:
        return len(self.encoded)

    def _at(self, place: int) -> Message:
        message = self.encoded[place]
        return self.codec.decode_message(message.bare, trace=message.trace if self.include_traces else None)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedSessions(_Decoded[Session]):
    """Sessions that are ready to be sent; `parts` is what a reply holds of them, in order."""

    parts: Sequence[bytes]
    codec: Codec

    def __len__(self) -> int:
        return len(self.parts)

    def _at(self, place: int) -> Session:
        return self.codec.decode_session(self.parts[place])
