"""A session's newest messages, as they are at one revision of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from services.storage.models import Message, Session
from services.storage.store.encoded import Codec, EncodedMessage, EncodedMessages
from services.storage.store.results import LoadedSession, MessagePage

WINDOW_MAX_MESSAGES = 200
WINDOW_MAX_BYTES = 512 * 1024
"""As reads count them, with traces; the newest message is held however large it is."""

_OBJECTS_BYTES = 1_024
"""What a window takes up beside its messages: itself, its names, and its place in the cache."""


@dataclass(frozen=True)
class MessageWindow:
    """The messages up to the session's last, oldest first.

    A read of them is answered exactly as the store would, or with None where it takes older ones to do so.
    """

    user_id: str
    session_id: str
    uid: str
    revision: int
    message_count: int
    """Of the whole session; the position of its last message."""
    messages: tuple[EncodedMessage, ...]
    counted_whole: int
    """What all of them count for, with their traces."""
    memory_bytes: int
    """What it takes up. Both are kept, so that to add a message costs nothing for those that are there."""

    @classmethod
    def of(cls, loaded: LoadedSession, codec: Codec) -> "MessageWindow | None":
        """None where that is not a session's newest messages without a gap."""
        session = loaded.session
        if not _are_last(loaded.messages, session):
            return None
        return cls.holding(
            session.user_id,
            session.session_id,
            session.uid,
            session.revision,
            session.message_count,
            tuple(EncodedMessage.of(message, codec) for message in loaded.messages),
        ).trimmed()

    @classmethod
    def holding(
        cls,
        user_id: str,
        session_id: str,
        uid: str,
        revision: int,
        message_count: int,
        messages: tuple[EncodedMessage, ...],
    ) -> "MessageWindow":
        counted = sum(message.counted_whole for message in messages)
        memory = _OBJECTS_BYTES + 4 * (len(user_id) + len(session_id) + len(uid)) + sum(map(_memory_bytes, messages))
        return cls(user_id, session_id, uid, revision, message_count, messages, counted, memory)

    def is_at(self, session: Session) -> bool:
        return self.revision == session.revision and self.uid == session.uid

    def extended(self, session: Session, added: Sequence[Message], codec: Codec) -> "MessageWindow | None":
        """The window after the one change that added these; None where something else led to that session."""
        follows = (
            session.uid == self.uid
            and session.revision == self.revision + 1
            and session.message_count == self.message_count + len(added)
            and _are_last(added, session)
        )
        if not follows:
            return None
        encoded = [EncodedMessage.of(message, codec) for message in added]
        return replace(
            self,
            revision=session.revision,
            message_count=session.message_count,
            messages=(*self.messages, *encoded),
            counted_whole=self.counted_whole + sum(message.counted_whole for message in encoded),
            memory_bytes=self.memory_bytes + sum(map(_memory_bytes, encoded)),
        ).trimmed()

    def trimmed(self) -> "MessageWindow":
        """Without the oldest that are too many or too much."""
        count, counted, memory = len(self.messages), self.counted_whole, self.memory_bytes
        for oldest in self.messages[:-1]:
            if count <= WINDOW_MAX_MESSAGES and counted <= WINDOW_MAX_BYTES:
                break
            count -= 1
            counted -= oldest.counted_whole
            memory -= _memory_bytes(oldest)
        if count == len(self.messages):
            return self
        return replace(self, messages=self.messages[-count:], counted_whole=counted, memory_bytes=memory)

    def newest(
        self, session: Session, *, max_messages: int, include_traces: bool, max_bytes: int, codec: Codec
    ) -> LoadedSession | None:
        """As load_session does; `session` is the one that the window is of, at its revision."""
        asked = min(max_messages or self.message_count, self.message_count)
        newest = self._before(self.message_count + 1, asked)
        taken = self._taken(newest, asked=asked, include_traces=include_traces, max_bytes=max_bytes)
        if taken is None:
            return None
        return LoadedSession(
            session=session,
            messages=EncodedMessages(taken[::-1], include_traces, codec),
            truncated=len(taken) < self.message_count,
        )

    def page(
        self,
        *,
        page_size: int,
        after: int | None,
        descending: bool,
        include_traces: bool,
        max_bytes: int,
        codec: Codec,
    ) -> MessagePage | None:
        """As list_messages does."""
        wanted = page_positions(self.message_count, page_size=page_size, after=after, descending=descending)
        if descending:
            held = self._before(wanted.start + 1, len(wanted))
        else:
            held = self._from(wanted.start, len(wanted))
        taken = self._taken(held, asked=len(wanted), include_traces=include_traces, max_bytes=max_bytes)
        if taken is None:
            return None
        last = wanted[len(taken) - 1] if taken else 0
        is_end = not taken or last == (1 if descending else self.message_count)
        return MessagePage(
            messages=EncodedMessages(taken, include_traces, codec),
            next=None if is_end else last,
            revision=self.revision,
        )

    @property
    def _below(self) -> int:
        """The position before the first message that is held."""
        return self.message_count - len(self.messages)

    def _before(self, position: int, count: int) -> tuple[EncodedMessage, ...]:
        """Those before a position, the newest first, as far as they are held."""
        end = max(position - 1 - self._below, 0)
        return self.messages[max(end - count, 0) : end][::-1]

    def _from(self, position: int, count: int) -> tuple[EncodedMessage, ...]:
        start = position - 1 - self._below
        return self.messages[start : start + count] if start >= 0 else ()

    def _taken(
        self, held: tuple[EncodedMessage, ...], *, asked: int, include_traces: bool, max_bytes: int
    ) -> tuple[EncodedMessage, ...] | None:
        """The first that fit; None where what is not held might fit too."""
        fit = len(held)
        if self.counted_whole > max_bytes:
            sizes = (message.counted_whole if include_traces else message.counted for message in held)
            fit = _fitting(sizes, at_most=fit, max_bytes=max_bytes)
        return None if fit == len(held) < asked else held[:fit]


def page_positions(message_count: int, *, page_size: int, after: int | None, descending: bool) -> range:
    """The positions of a page that no bytes bound, in its order."""
    if descending:
        start = message_count if after is None else min(after - 1, message_count)
        return range(start, max(start - page_size, 0), -1)
    start = max(after or 0, 0) + 1
    return range(start, min(start + page_size, message_count + 1))


def _memory_bytes(message: EncodedMessage) -> int:
    """With its place in the window."""
    return message.memory_bytes + 8


def _are_last(messages: Sequence[Message], session: Session) -> bool:
    first = session.message_count - len(messages) + 1
    return all(message.position == position for position, message in enumerate(messages, first))


def _fitting(sizes: Iterable[int], *, at_most: int, max_bytes: int) -> int:
    """How many of the first fit together; the first always does."""
    total = count = 0
    for size in sizes:
        total += size
        if count == at_most or (count and total > max_bytes):
            break
        count += 1
    return count
