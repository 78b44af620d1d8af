from collections.abc import AsyncIterator

import pytest

from services.storage.store.events import RedisEventLog
from services.storage.store.redis_connection import RedisConnection
from tests.integration.event_log.harness import TTL, unique
from tests.integration.redis_connection.harness import RedisServer, private_redis


@pytest.fixture(scope="session")
async def one_redis_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisServer]:
    async with private_redis(tmp_path_factory.mktemp("event_log")) as server:
        yield server


@pytest.fixture
async def redis_server(one_redis_server: RedisServer) -> AsyncIterator[RedisServer]:
    """An empty server, which is one and the same for all tests."""
    await one_redis_server.reset()
    yield one_redis_server
    await one_redis_server.reset()


@pytest.fixture
async def connection(redis_server: RedisServer) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection.open(redis_server.url)
    yield connection
    await connection.close()


@pytest.fixture
async def log(connection: RedisConnection) -> AsyncIterator[RedisEventLog]:
    """With time enough on a busy machine."""
    log = RedisEventLog(connection, ttl=TTL, budget_s=10)
    yield log
    await log.close()


@pytest.fixture
def user() -> str:
    return unique("user")


@pytest.fixture
def run() -> str:
    return unique("run")
