"""Where each session's newest messages are kept between reads."""

from collections.abc import Sequence
from functools import partial

import structlog

from services.storage.models import Message, Session
from services.storage.store.base import ConversationStorage
from services.storage.store.cache.counters import CacheCounters
from services.storage.store.cache.envelope import Unreadable, pack_window, unpack_window
from services.storage.store.cache.flights import Flights
from services.storage.store.cache.local import LocalCache
from services.storage.store.cache.lookups import Lookups
from services.storage.store.cache.session_list import SessionList
from services.storage.store.cache.shared import SharedCache, messages_key
from services.storage.store.cache.window import WINDOW_MAX_BYTES, WINDOW_MAX_MESSAGES, MessageWindow
from services.storage.store.encoded import Codec
from services.storage.store.results import LoadedSession

SHARED_FROM_MESSAGES = 20
"""A session's messages are looked for in Redis, and put there, from so many on; fewer are read as fast."""

Key = tuple[str, str | bool]
"""A user's session, or a list of that user's sessions."""
Local = LocalCache[Key, MessageWindow | SessionList]

_log = structlog.get_logger()


class MessageCache:
    """Windows by session, each believed only for a session that is known to be at its uid and revision."""

    def __init__(
        self,
        inner: ConversationStorage,
        codec: Codec,
        *,
        local: Local,
        shared: SharedCache,
        counters: CacheCounters,
        shared_from_messages: int,
    ):
        self._inner = inner
        self._codec = codec
        self._local = local
        self._shared = shared
        self._counters = counters
        self._shared_from_messages = shared_from_messages
        self._reads: Flights[tuple[str, str, str, int], tuple[Session, MessageWindow | None]] = Flights()
        self._lookups: Lookups[tuple[str, str], Session] = Lookups()
        self._forgotten = 0

    async def look_up(self, user_id: str, session_id: str) -> Session:
        """The session as it is now: no older than this call."""
        return await self._lookups.ask((user_id, session_id), partial(self._inner.get_session, user_id, session_id))

    async def newest(self, session: Session) -> tuple[Session, MessageWindow | None]:
        """The window of the session as it was looked up, or of the one that it has become since.

        None where the store did not return what a window can be made of.
        """
        if not session.message_count:
            return session, self._window(LoadedSession(session=session, messages=(), truncated=False))
        held = self._local.get((session.user_id, session.session_id))
        if isinstance(held, MessageWindow) and held.is_at(session):
            self._counters.local_hits += 1
            return session, held
        name = session.user_id, session.session_id, session.uid, session.revision
        if name in self._reads:
            self._counters.joined += 1
        read, window = await self._reads.join(name, partial(self._read, session))
        # A session's note changes without its revision: the one looked up by this very reader is the newer.
        same = (read.uid, read.revision) == (session.uid, session.revision)
        return session if same else read, window

    def follow(self, session: Session, added: Sequence[Message]) -> None:
        """A write has added these and led to that session: what is held is brought there, if it was just before."""
        held = self._local.get((session.user_id, session.session_id))
        if isinstance(held, MessageWindow):
            window = held.extended(session, added, self._codec)
            if window is not None:
                self._counters.extended += 1
                self._keep_here(window)

    def forget(self, user_id: str, session_ids: Sequence[str]) -> Sequence[str]:
        """The sessions are deleted: nothing is served of them as it is, and now nothing is held here either.

        Returns the names of what may be held in Redis.
        """
        # What is being read may be of before, and is not kept any more.
        self._forgotten += 1
        for session_id in session_ids:
            self._local.drop((user_id, session_id))
        return [messages_key(user_id, session_id) for session_id in session_ids]

    async def close(self) -> None:
        await self._lookups.close()
        await self._reads.close()

    async def _read(self, session: Session) -> tuple[Session, MessageWindow | None]:
        forgotten = self._forgotten
        window = await self._from_shared(session)
        if window is not None:
            self._counters.shared_hits += 1
            if forgotten == self._forgotten:
                self._keep_here(window)
            return session, window
        loaded = await self._inner.load_session(
            session.user_id,
            session.session_id,
            max_messages=WINDOW_MAX_MESSAGES,
            include_traces=True,
            max_bytes=WINDOW_MAX_BYTES,
        )
        self._counters.fills += 1
        window = self._window(loaded)
        if window is not None and forgotten == self._forgotten:
            self._keep_here(window)
            if window.message_count >= self._shared_from_messages:
                key = messages_key(window.user_id, window.session_id)
                self._shared.put_later(key, partial(pack_window, window))
        return loaded.session, window

    async def _from_shared(self, session: Session) -> MessageWindow | None:
        if session.message_count < self._shared_from_messages:
            return None
        value = await self._shared.get(messages_key(session.user_id, session.session_id))
        if value is None:
            return None
        try:
            window = unpack_window(value)
            if (window.user_id, window.session_id) != (session.user_id, session.session_id):
                raise Unreadable("owner")
            if window.is_at(session) and window.message_count != session.message_count:
                raise Unreadable("count")
        except Unreadable as reason:
            # The fill that follows takes its place.
            self._counters.dropped += 1
            _log.warning("cache_value_dropped", of="messages", cause=str(reason))
            return None
        return window if window.is_at(session) else None

    def _window(self, loaded: LoadedSession) -> MessageWindow | None:
        return MessageWindow.of(loaded, self._codec)

    def _keep_here(self, window: MessageWindow) -> None:
        """Unless what is held is of later: a slow read may end after a quick one that began when it had."""
        key = window.user_id, window.session_id
        held = self._local.get(key)
        if isinstance(held, MessageWindow) and held.uid == window.uid and held.revision > window.revision:
            return
        self._local.put(key, window)
