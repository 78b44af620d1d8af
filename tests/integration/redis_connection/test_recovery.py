"""How the connection opens its breaker on a Redis that fails, and comes back by itself with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import structlog
from redis.asyncio import Redis

from services.storage.store.redis_connection import (
    FAILURES_TO_OPEN,
    MAX_CONNECTIONS,
    RedisConnection,
    RedisUnavailable,
)
from tests.integration.redis_connection.harness import RedisServer, way_to

BACK_WITHIN_S = 3.0

Action = Callable[[RedisServer], Awaitable[None]]


class States:
    """The breaker's states as it tells them."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self._closed = asyncio.Event()

    def __call__(self, is_open: bool) -> None:
        self.told.append(is_open)
        if not is_open:
            self._closed.set()

    async def back(self) -> None:
        async with asyncio.timeout(BACK_WITHIN_S):
            await self._closed.wait()


@pytest.fixture
def states() -> States:
    return States()


@pytest.fixture
async def connection(redis_server: RedisServer, states: States) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection.open(redis_server.url, on_state=states)
    yield connection
    await connection.close()


async def write(redis: Redis) -> None:
    await redis.set("a", b"value")


async def open_breaker(connection: RedisConnection) -> None:
    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(RedisUnavailable):
            await connection.run(write)
    assert connection.is_open


async def freeze(server: RedisServer) -> None:
    server.freeze()


async def thaw(server: RedisServer) -> None:
    server.thaw()


async def follow_nobody(server: RedisServer) -> None:
    await server.client.replicaof("127.0.0.1", "1")


async def lead_again(server: RedisServer) -> None:
    await server.client.replicaof("NO", "ONE")


@pytest.mark.parametrize(
    ("break_it", "mend_it"),
    [
        (RedisServer.kill, RedisServer.start),
        (freeze, thaw),
        (RedisServer.fill, RedisServer.make_room),
        (follow_nobody, lead_again),
    ],
    ids=["killed", "frozen", "full", "read-only"],
)
async def test_it_is_back_within_three_seconds_of_redis(
    redis_server: RedisServer, connection: RedisConnection, states: States, break_it: Action, mend_it: Action
) -> None:
    await connection.run(write, budget_s=5)
    await break_it(redis_server)
    await open_breaker(connection)
    await mend_it(redis_server)
    await states.back()
    await connection.run(write, budget_s=5)
    assert states.told == [True, False]


async def test_a_redis_that_was_absent_at_the_start_is_found(
    redis_server: RedisServer, connection: RedisConnection, states: States
) -> None:
    await redis_server.kill()
    await open_breaker(connection)
    await redis_server.start()
    await states.back()
    await connection.run(write, budget_s=5)


async def test_idle_connections_that_a_restart_closed_fail_no_call(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    await asyncio.gather(*(connection.run(write, budget_s=5) for _ in range(MAX_CONNECTIONS)))
    await redis_server.kill()
    await redis_server.start()
    await asyncio.gather(*(connection.run(write, budget_s=5) for _ in range(MAX_CONNECTIONS)))
    assert connection.failure_count == 0


async def test_dead_connections_are_not_what_it_goes_on_with(redis_server: RedisServer, states: States) -> None:
    async with way_to(redis_server) as way:
        connection = RedisConnection.open(way.url, budget_s=0.5, on_state=states)
        try:
            await asyncio.gather(*(connection.run(write, budget_s=5) for _ in range(MAX_CONNECTIONS)))
            way.cut()
            calls = (connection.run(write) for _ in range(FAILURES_TO_OPEN))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {RedisUnavailable}
            await states.back()
            await asyncio.gather(*(connection.run(write, budget_s=5) for _ in range(MAX_CONNECTIONS)))
        finally:
            await connection.close()


async def test_one_write_a_second_asks_whether_it_is_back_however_many_call(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    loop = asyncio.get_running_loop()
    await redis_server.fill()
    await open_breaker(connection)
    opened = loop.time()
    refused = 0
    while loop.time() < opened + 2.5:
        with pytest.raises(RedisUnavailable):
            await connection.run(write)
        refused += 1
        await asyncio.sleep(0)
    assert refused > 100
    assert await probes(redis_server) in (1, 2)
    assert connection.is_open


async def test_after_its_return_it_takes_five_failures_again(
    redis_server: RedisServer, connection: RedisConnection, states: States
) -> None:
    await redis_server.fill()
    await open_breaker(connection)
    await redis_server.make_room()
    await states.back()
    await redis_server.fill()
    for _ in range(FAILURES_TO_OPEN - 1):
        with pytest.raises(RedisUnavailable):
            await connection.run(write)
    assert not connection.is_open


async def test_opening_and_closing_are_one_log_line_each(
    redis_server: RedisServer, connection: RedisConnection, states: States
) -> None:
    with structlog.testing.capture_logs() as lines:
        await redis_server.kill()
        await open_breaker(connection)
        await redis_server.start()
        await states.back()
    assert [(line["event"], line.get("cause")) for line in lines] == [
        ("redis_breaker_opened", "ConnectionError"),
        ("redis_breaker_closed", None),
    ]


async def probes(server: RedisServer) -> int:
    """Of a full server: the writes that it has refused, but for those that opened the breaker."""
    statistics = (await server.client.info("commandstats")).get("cmdstat_set", {"rejected_calls": 0})
    return int(statistics["rejected_calls"]) - FAILURES_TO_OPEN
