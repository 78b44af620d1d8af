"""The stores that the suite runs over: each rule holds for every one of them."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from services.storage.rpc.encoding import ReplyCodec
from services.storage.store.base import ConversationStorage
from services.storage.store.cached import CachedConversationStorage
from services.storage.store.events import RedisEventLog
from services.storage.store.postgres import PostgresConversationStorage, PostgresLimits
from services.storage.store.redis_connection import RedisConnection
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import Conversation

# Twenty calls at once on a slow machine are no overload here.
_LIMITS = PostgresLimits(pool_wait_s=10)


@asynccontextmanager
async def _postgres(url: str, valkey_url: str) -> AsyncIterator[ConversationStorage]:
    redis = RedisConnection.open(valkey_url)
    store = await PostgresConversationStorage.open(url, limits=_LIMITS, events=_event_log(redis))
    try:
        yield store
    finally:
        await store.close()
        await redis.close()


@asynccontextmanager
async def _cached(url: str, valkey_url: str, **layers: int) -> AsyncIterator[ConversationStorage]:
    redis = RedisConnection.open(valkey_url)
    inner = await PostgresConversationStorage.open(url, limits=_LIMITS, events=_event_log(redis))
    store = CachedConversationStorage(inner, codec=ReplyCodec(), redis=redis, **layers)
    try:
        yield store
    finally:
        await store.close()
        await redis.close()


def _event_log(redis: RedisConnection) -> RedisEventLog:
    return RedisEventLog(redis, ttl=timedelta(hours=1))


_STORES: dict[str, Callable[[str, str], AbstractAsyncContextManager[ConversationStorage]]] = {
    "postgres": _postgres,
    "cached": _cached,
    "cached in Redis alone": partial(_cached, local_max_bytes=0, shared_from_messages=1),
}


@pytest.fixture(scope="session")
async def suite_database_url(postgres_url: str) -> AsyncIterator[str]:
    """One database for the whole suite: a test is alone with the user that it makes."""
    name = f"conformance_{secrets.token_hex(8)}"
    administrator = await asyncpg.connect(postgres_url)
    try:
        await administrator.execute(f"CREATE DATABASE {name}")
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await administrator.close()


@pytest.fixture(scope="session", params=list(_STORES))
async def store(
    request: pytest.FixtureRequest, suite_database_url: str, valkey_url: str
) -> AsyncIterator[ConversationStorage]:
    async with _STORES[request.param](suite_database_url, valkey_url) as store:
        yield store


@pytest.fixture
def conversation(store: ConversationStorage) -> Conversation:
    """A session that does not exist yet, of a user nobody knows yet."""
    return Conversation(store)


@pytest.fixture
async def ageing(suite_database_url: str) -> AsyncIterator[Ageing]:
    connection = await asyncpg.connect(suite_database_url)
    try:
        yield Ageing(connection)
    finally:
        await connection.close()
