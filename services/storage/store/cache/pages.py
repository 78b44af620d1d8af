"""Pages of messages that lie beyond a session's newest, kept within the process."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.storage.models import Message, Session
from services.storage.store.base import ConversationStorage
from services.storage.store.cache.counters import CacheCounters
from services.storage.store.cache.flights import Flights
from services.storage.store.encoded import Codec, EncodedMessage, EncodedMessages
from services.storage.store.results import MessagePage

_OBJECTS_BYTES = 1_024
# Encoding a page of a thousand takes as long as twenty other calls.
_ENCODED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class PageQuery:
    user_id: str
    session_id: str
    page_size: int
    after: int | None
    descending: bool
    include_traces: bool
    max_bytes: int


@dataclass(frozen=True, slots=True)
class HeldPage:
    """A page as it was at one revision of its session."""

    uid: str
    page: MessagePage
    memory_bytes: int

    def is_at(self, session: Session) -> bool:
        return self.page.revision == session.revision and self.uid == session.uid


class Kept(Protocol):
    """Where pages are kept, beside what else is."""

    def get(self, key: PageQuery, /) -> object: ...

    def put(self, key: PageQuery, value: HeldPage, /) -> None: ...


class MessagePages:
    """A history that is read through again is not read again, as long as its session stays as it is."""

    def __init__(
        self,
        inner: ConversationStorage,
        codec: Codec,
        *,
        local: Kept,
        counters: CacheCounters,
    ):
        self._inner = inner
        self._codec = codec
        self._local = local
        self._counters = counters
        self._reads: Flights[tuple[PageQuery, str, int], MessagePage] = Flights()

    async def page(self, session: Session, query: PageQuery) -> MessagePage:
        """The page of the session as it was looked up, or as it has become since."""
        held = self._local.get(query)
        if isinstance(held, HeldPage) and held.is_at(session):
            self._counters.page_hits += 1
            return held.page
        return await self._reads.join((query, session.uid, session.revision), lambda: self._read(session, query))

    async def close(self) -> None:
        await self._reads.close()

    async def _read(self, session: Session, query: PageQuery) -> MessagePage:
        self._counters.beyond += 1
        read = await self._inner.list_messages(
            query.user_id,
            query.session_id,
            page_size=query.page_size,
            after=query.after,
            descending=query.descending,
            include_traces=query.include_traces,
            max_bytes=query.max_bytes,
        )
        encoded = await self._encoded(read.messages)
        page = MessagePage(
            messages=EncodedMessages(encoded, query.include_traces, self._codec), next=read.next, revision=read.revision
        )
        # Of a session that was made anew meanwhile, at the same revision, it is kept under a uid that is gone.
        memory = _OBJECTS_BYTES + sum(message.memory_bytes + 8 for message in encoded)
        self._local.put(query, HeldPage(session.uid, page, memory))
        return page

    async def _encoded(self, messages: Sequence[Message]) -> list[EncodedMessage]:
        encoded = []
        for place, message in enumerate(messages, 1):
            encoded.append(EncodedMessage.of(message, self._codec))
            if not place % _ENCODED_AT_ONCE:
                await asyncio.sleep(0)
        return encoded
