"""The store beneath a cache, which tells how often it was read, and waits where a test wants it to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from services.storage.models import Session
from services.storage.rpc.encoding import ReplyCodec
from services.storage.store.base import SessionsDeleted
from services.storage.store.cache.shared import messages_key, sessions_key
from services.storage.store.cached import CachedConversationStorage
from services.storage.store.postgres import PostgresConversationStorage
from services.storage.store.redis_connection import RedisConnection
from services.storage.store.results import LoadedSession, SessionCursor, SessionPage
from tests.conformance.conversation import Conversation
from tests.integration.redis_connection.harness import RedisServer, until

PLENTY = 15 * 1024 * 1024


class WatchedStorage(PostgresConversationStorage):
    """Counts what is read, and holds back what was read of messages and lists while its gate is closed.

    A deletion has a gate of its own, which it comes to once it is committed.
    """

    gets = 0
    loads = 0
    lists = 0
    reading = 0
    """Reads of messages that are done with the database, and held back."""
    deleting = 0
    """Deletions that are done with the database, and held back."""
    gate: asyncio.Event | None = None
    deletion_gate: asyncio.Event | None = None
    deletion_failure: Exception | None = None
    before_deleting_user: Callable[[], Awaitable[None]] | None = None
    _failure: Exception | None = None

    def close_gate(self) -> None:
        self.gets = self.loads = self.lists = 0
        self.gate = asyncio.Event()

    def open_gate(self, *, failing: Exception | None = None) -> None:
        self._failure = failing
        if self.gate is not None:
            self.gate.set()

    def pass_by_gate(self) -> None:
        """For reads from now on; those that wait there go on waiting."""
        self.gate = None

    async def get_session(self, user_id: str, session_id: str) -> Session:
        session = await super().get_session(user_id, session_id)
        self.gets += 1
        return session

    async def load_session(
        self, user_id: str, session_id: str, *, max_messages: int, include_traces: bool, max_bytes: int
    ) -> LoadedSession:
        self.loads += 1
        loaded = await super().load_session(
            user_id, session_id, max_messages=max_messages, include_traces=include_traces, max_bytes=max_bytes
        )
        self.reading += 1
        try:
            await self._pass_gate()
        finally:
            self.reading -= 1
        return loaded

    async def list_sessions(
        self, user_id: str, *, page_size: int, after: SessionCursor | None, full: bool, max_bytes: int
    ) -> SessionPage:
        self.lists += 1
        page = await super().list_sessions(user_id, page_size=page_size, after=after, full=full, max_bytes=max_bytes)
        await self._pass_gate()
        return page

    async def delete_session(
        self, user_id: str, session_id: str, *, request_id: str = "", request_hash: bytes = b""
    ) -> int:
        count = await super().delete_session(user_id, session_id, request_id=request_id, request_hash=request_hash)
        self.deleting += 1
        try:
            if self.deletion_gate is not None:
                await self.deletion_gate.wait()
            if self.deletion_failure is not None:
                raise self.deletion_failure
        finally:
            self.deleting -= 1
        return count

    async def delete_user_data(
        self,
        user_id: str,
        *,
        request_id: str = "",
        request_hash: bytes = b"",
        on_deleted: SessionsDeleted | None = None,
    ) -> int:
        if self.before_deleting_user is not None:
            await self.before_deleting_user()
        return await super().delete_user_data(
            user_id, request_id=request_id, request_hash=request_hash, on_deleted=on_deleted
        )

    async def _pass_gate(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self._failure is not None:
            raise self._failure


class Replica:
    """One storage process's store, with its cache."""

    def __init__(self, inner: WatchedStorage, store: CachedConversationStorage, redis: RedisConnection | None):
        self.inner = inner
        self.store = store
        self.redis = redis

    async def settle(self) -> None:
        """Until nothing more is being stored in Redis."""

        await when(lambda: not self.store.storing)

    def sees(self, conversation: Conversation) -> Conversation:
        """The same session, by way of this replica."""
        return Conversation(self.store, user_id=conversation.user_id, session_id=conversation.session_id)


@asynccontextmanager
async def replica(
    database_url: str,
    redis_url: str | None,
    *,
    redis_budget_s: float = 5.0,
    local_kept_s: float = 3_600,
    **layers: int,
) -> AsyncIterator[Replica]:
    """Its cache asks Redis for sessions of any size, and waits for it on a busy machine, unless told otherwise."""
    redis = None if redis_url is None else RedisConnection.open(redis_url, budget_s=redis_budget_s)
    inner = await WatchedStorage.open(database_url)
    assert isinstance(inner, WatchedStorage)
    layers = {"shared_from_messages": 1} | layers
    store = CachedConversationStorage(inner, codec=ReplyCodec(), redis=redis, local_kept_s=local_kept_s, **layers)
    try:
        yield Replica(inner, store, redis)
    finally:
        await store.close()
        if redis is not None:
            await redis.close()


async def when(condition: Callable[[], bool]) -> None:
    """Waits until what other tasks do has made it true."""

    async def holds() -> bool:
        return condition()

    await until(holds, within_s=30)


async def load(
    conversation: Conversation, max_messages: int = 0, *, include_traces: bool = True, max_bytes: int = PLENTY
) -> LoadedSession:
    return await conversation.store.load_session(
        conversation.user_id,
        conversation.session_id,
        max_messages=max_messages,
        include_traces=include_traces,
        max_bytes=max_bytes,
    )


async def contents(conversation: Conversation) -> list[str]:
    return [message.content for message in (await load(conversation)).messages]


async def listed(conversation: Conversation, *, full: bool = False, page_size: int = 100) -> SessionPage:
    return await conversation.store.list_sessions(
        conversation.user_id, page_size=page_size, after=None, full=full, max_bytes=PLENTY
    )


async def messages_in_redis(server: RedisServer, conversation: Conversation) -> bytes:
    """The value that is kept of the session's messages, once it is there."""
    return await _in_redis(server, messages_key(conversation.user_id, conversation.session_id))


async def list_in_redis(server: RedisServer, user_id: str, *, full: bool = False) -> bytes:
    return await _in_redis(server, sessions_key(user_id, full=full))


async def _in_redis(server: RedisServer, key: str) -> bytes:
    async def is_there() -> bool:
        return bool(await server.client.exists(key))

    await until(is_there)
    value = await server.client.get(key)
    assert isinstance(value, bytes)
    return value
