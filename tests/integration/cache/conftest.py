import secrets
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.conformance.ageing import Ageing
from tests.conformance.conversation import Conversation
from tests.integration.cache.harness import Replica, replica
from tests.integration.redis_connection.harness import RedisServer, private_redis


@pytest.fixture(scope="session")
async def cache_database_url(postgres_url: str) -> AsyncIterator[str]:
    """One database for all of these tests: each has a user of its own."""
    name = f"cache_{secrets.token_hex(8)}"
    administrator = await asyncpg.connect(postgres_url)
    try:
        await administrator.execute(f"CREATE DATABASE {name}")
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await administrator.close()


@pytest.fixture(scope="session")
async def one_redis_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisServer]:
    async with private_redis(tmp_path_factory.mktemp("cache")) as server:
        yield server


@pytest.fixture
async def redis_server(one_redis_server: RedisServer) -> AsyncIterator[RedisServer]:
    """An empty server, which is one and the same for all tests."""
    await one_redis_server.reset()
    yield one_redis_server
    await one_redis_server.reset()


@pytest.fixture
async def here(cache_database_url: str, redis_server: RedisServer) -> AsyncIterator[Replica]:
    async with replica(cache_database_url, redis_server.url) as here:
        yield here


@pytest.fixture
async def elsewhere(cache_database_url: str, redis_server: RedisServer) -> AsyncIterator[Replica]:
    """Another replica on the same database and Redis."""
    async with replica(cache_database_url, redis_server.url) as elsewhere:
        yield elsewhere


@pytest.fixture
async def redis_alone(cache_database_url: str, redis_server: RedisServer) -> AsyncIterator[Replica]:
    """A replica that keeps nothing within its process."""
    async with replica(cache_database_url, redis_server.url, local_max_bytes=0) as redis_alone:
        yield redis_alone


@pytest.fixture
def conversation(here: Replica) -> Conversation:
    """A session that does not exist yet, of a user nobody knows yet."""
    return Conversation(here.store)


@pytest.fixture
async def administrator(cache_database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(cache_database_url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def ageing(administrator: asyncpg.Connection) -> Ageing:
    return Ageing(administrator)
