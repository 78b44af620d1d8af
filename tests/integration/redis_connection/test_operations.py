"""What an operation gets from Redis, and what it costs where Redis does not answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from redis.asyncio import Redis

from services.local.ports import free_port
from services.storage.store.redis_connection import MAX_CONNECTIONS, RedisConnection, RedisUnavailable
from tests.integration.redis_connection.harness import RedisServer, until


def get(key: str) -> Callable[[Redis], Awaitable[object]]:
    return lambda redis: redis.get(key)


def store(key: str, value: bytes) -> Callable[[Redis], Awaitable[object]]:
    return lambda redis: redis.set(key, value)


async def wait_in_a_call(redis: Redis) -> None:
    await redis.blpop(["nothing here"], 0)


async def wait_in_a_pipeline(redis: Redis) -> None:
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.get("a")
        pipeline.blpop(["nothing here"], 0)
        pipeline.get("a")
        await pipeline.execute()


async def blocked(server: RedisServer, count: int) -> None:
    """Returns once so many clients wait within Redis."""

    async def they_wait() -> bool:
        return bool((await server.client.info("clients"))["blocked_clients"] == count)

    await until(they_wait)


async def elapsed_failing(connection: RedisConnection, *, budget_s: float | None = None) -> float:
    begin = asyncio.get_running_loop().time()
    with pytest.raises(RedisUnavailable):
        await connection.run(get("a"), budget_s=budget_s)
    return asyncio.get_running_loop().time() - begin


async def test_an_operation_gets_bytes_as_they_were_stored(connection: RedisConnection) -> None:
    value = b"\x00\xff\r\n$-1\r\n"
    await connection.run(store("a", value), budget_s=5)
    assert await connection.run(get("a"), budget_s=5) == value


async def test_what_the_url_says_of_decoding_and_trying_again_does_not_count(redis_server: RedisServer) -> None:
    connection = RedisConnection.open(f"{redis_server.url}?decode_responses=yes&retry_on_timeout=yes&protocol=3")
    await redis_server.client.set("a", b"\xff")
    assert await connection.run(get("a"), budget_s=5) == b"\xff"
    await connection.close()


async def test_more_operations_at_once_than_connections_wait_their_turn(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    await redis_server.client.set("a", b"value")
    values = await asyncio.gather(*(connection.run(get("a"), budget_s=10) for _ in range(MAX_CONNECTIONS * 5)))
    assert set(values) == {b"value"}
    others = 1
    assert (await redis_server.client.info("clients"))["connected_clients"] <= MAX_CONNECTIONS + others


async def test_opening_asks_for_no_redis() -> None:
    connection = RedisConnection.open(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(RedisUnavailable):
        await connection.run(get("a"))
    await connection.close()


async def test_a_frozen_redis_costs_a_call_its_budget_at_first_and_next_to_nothing_then(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    await connection.run(get("a"), budget_s=5)
    redis_server.freeze()
    first = [await elapsed_failing(connection) for _ in range(5)]
    assert connection.is_open
    later = [await elapsed_failing(connection) for _ in range(50)]
    # The quickest of each: what else the machine does is no part of the rule.
    assert min(first) < 0.06
    assert min(later) < 0.002


async def test_a_call_has_its_own_budget(redis_server: RedisServer, connection: RedisConnection) -> None:
    await connection.run(get("a"), budget_s=5)
    redis_server.freeze()
    assert await elapsed_failing(connection, budget_s=0.3) > 0.29


async def test_the_budget_holds_over_connecting_too(redis_server: RedisServer, connection: RedisConnection) -> None:
    redis_server.freeze()
    assert min([await elapsed_failing(connection) for _ in range(3)]) < 0.06


async def test_the_budget_holds_over_the_wait_for_a_connection_too(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    redis_server.freeze()
    calls = (elapsed_failing(connection, budget_s=1) for _ in range(MAX_CONNECTIONS * 3))
    assert max(await asyncio.gather(*calls)) < 2


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers all that it is sent alike, then hangs up; with what it was sent."""
    received: list[bytes] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1_000))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], received
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b":many\r\n", b"$5\r\nab"])
async def test_what_fails_is_not_tried_again_whatever_came_back(answer: bytes) -> None:
    async with answering(answer) as (port, received):
        connection = RedisConnection.open(f"redis://127.0.0.1:{port}")
        with pytest.raises(RedisUnavailable):
            await connection.run(get("a"), budget_s=5)
        await connection.close()
    assert len(received) == 1


async def test_a_reply_that_came_too_late_answers_no_later_call(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    keys = ["a", "b", "c"]
    for key in keys:
        await connection.run(store(key, key.encode()), budget_s=5)
    await asyncio.gather(*(connection.run(get(key), budget_s=5) for key in keys))
    redis_server.freeze()
    await asyncio.gather(*(elapsed_failing(connection) for _ in keys))
    redis_server.thaw()
    values = await asyncio.gather(*(connection.run(get(key), budget_s=5) for key in keys * 20))
    assert values == [key.encode() for key in keys] * 20


@pytest.mark.parametrize("operation", [wait_in_a_call, wait_in_a_pipeline])
async def test_the_reply_to_a_cancelled_call_answers_no_later_call(
    redis_server: RedisServer, connection: RedisConnection, operation: Callable[[Redis], Awaitable[None]]
) -> None:
    await redis_server.client.set("a", b"value of a")
    call = asyncio.create_task(connection.run(operation, budget_s=60))
    await blocked(redis_server, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await redis_server.client.rpush("nothing here", b"too late")
    assert [await connection.run(get("a"), budget_s=5) for _ in range(3)] == [b"value of a"] * 3


async def test_cancelled_calls_leave_every_connection_to_those_that_follow(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    for _ in range(3):
        calls = [asyncio.create_task(connection.run(wait_in_a_call, budget_s=60)) for _ in range(MAX_CONNECTIONS + 8)]
        await blocked(redis_server, MAX_CONNECTIONS)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await blocked(redis_server, 0)
    calls = [asyncio.create_task(connection.run(wait_in_a_call, budget_s=60)) for _ in range(MAX_CONNECTIONS)]
    await blocked(redis_server, MAX_CONNECTIONS)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_the_password_is_in_no_error_and_no_log_line(redis_server: RedisServer) -> None:
    address = redis_server.url.rsplit("@", 1)[1]
    connection = RedisConnection.open(f"redis://:wrong-{redis_server.password}@{address}")
    texts = []
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            with pytest.raises(RedisUnavailable) as failure:
                await connection.run(get("a"), budget_s=5)
            error: BaseException | None = failure.value
            while error is not None:
                texts.append(f"{error!r} {error}")
                error = error.__cause__ or error.__context__
        await asyncio.sleep(0)
    await connection.close()
    assert [line["cause"] for line in lines] == ["AuthenticationError"]
    assert redis_server.password not in repr((texts, lines, connection))


async def test_closing_fails_what_is_under_way_and_leaves_nothing_connected(
    redis_server: RedisServer, connection: RedisConnection
) -> None:
    call = asyncio.create_task(connection.run(wait_in_a_call, budget_s=60))
    await blocked(redis_server, 1)
    await connection.close()
    with pytest.raises(RedisUnavailable):
        await call

    async def only_ours_is_connected() -> bool:
        return bool((await redis_server.client.info("clients"))["connected_clients"] == 1)

    await until(only_ours_is_connected)
