"""Where the first page of each user's sessions is kept between reads."""

from collections.abc import Sequence
from functools import partial

import structlog

from services.storage.store.base import ConversationStorage
from services.storage.store.cache.counters import CacheCounters
from services.storage.store.cache.envelope import Unreadable, pack_list, unpack_list
from services.storage.store.cache.flights import Flights
from services.storage.store.cache.lookups import Lookups
from services.storage.store.cache.messages import Local
from services.storage.store.cache.session_list import LIST_MAX_BYTES, LIST_MAX_SESSIONS, SessionList
from services.storage.store.cache.shared import SharedCache, sessions_key
from services.storage.store.encoded import Codec
from services.storage.store.results import UserVersion

_log = structlog.get_logger()


class SessionListCache:
    """Lists by user, each believed only while the user's list is known to be at its revision."""

    def __init__(
        self, inner: ConversationStorage, codec: Codec, *, local: Local, shared: SharedCache, counters: CacheCounters
    ):
        self._inner = inner
        self._codec = codec
        self._local = local
        self._shared = shared
        self._counters = counters
        self._reads: Flights[tuple[str, bool, int], SessionList] = Flights()
        self._lookups: Lookups[str, UserVersion] = Lookups()
        self._forgotten = 0

    async def first(self, user_id: str, *, full: bool) -> SessionList | None:
        """None where the list is to be read from the store."""
        version = await self._lookups.ask(user_id, partial(self._inner.user_version, user_id))
        if not version.revision:
            # Of a user that is unknown, or deleted: a number that two states may share.
            return None
        held = self._local.get((user_id, full))
        if isinstance(held, SessionList) and held.is_at(version):
            self._counters.local_hits += 1
            return held
        name = user_id, full, version.revision
        if name in self._reads:
            self._counters.joined += 1
        read = await self._reads.join(name, partial(self._read, user_id, full=full, version=version))
        # Whoever joined late may have come after the time at which it changes by itself.
        return read if read.is_at(version) else None

    def forget(self, user_id: str) -> Sequence[str]:
        """The user has deleted something: nothing of it is held here any more.

        Returns the names of what may be held in Redis.
        """
        self._forgotten += 1
        for full in (False, True):
            self._local.drop((user_id, full))
        return [sessions_key(user_id, full=full) for full in (False, True)]

    async def close(self) -> None:
        await self._lookups.close()
        await self._reads.close()

    async def _read(self, user_id: str, *, full: bool, version: UserVersion) -> SessionList:
        forgotten = self._forgotten
        held = await self._from_shared(user_id, full=full, version=version)
        if held is not None:
            self._counters.shared_hits += 1
        else:
            held = await self._fill(user_id, full=full, version=version)
            if forgotten == self._forgotten:
                self._shared.put_later(sessions_key(user_id, full=full), partial(pack_list, held))
        if forgotten == self._forgotten:
            self._local.put((user_id, full), held)
        return held

    async def _fill(self, user_id: str, *, full: bool, version: UserVersion) -> SessionList:
        page = await self._inner.list_sessions(
            user_id, page_size=LIST_MAX_SESSIONS, after=None, full=full, max_bytes=LIST_MAX_BYTES
        )
        self._counters.fills += 1
        # Read after the version was: it may be newer than its label, and never older.
        return SessionList.of(page, self._codec, user_id=user_id, full=full, revision=version.revision)

    async def _from_shared(self, user_id: str, *, full: bool, version: UserVersion) -> SessionList | None:
        value = await self._shared.get(sessions_key(user_id, full=full))
        if value is None:
            return None
        try:
            held = unpack_list(value)
            if (held.user_id, held.full) != (user_id, full):
                raise Unreadable("owner")
        except Unreadable as reason:
            # The fill that follows takes its place.
            self._counters.dropped += 1
            _log.warning("cache_value_dropped", of="sessions", cause=str(reason))
            return None
        return held if held.is_at(version) else None
