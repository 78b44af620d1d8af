"""The breaker of the Redis connection, with operations that never get as far as Redis."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog
from redis.asyncio import Redis
from redis.exceptions import (
    BusyLoadingError,
    InvalidResponse,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.contextvars import bound_contextvars, merge_contextvars

from services.local.ports import free_port
from services.storage.store.redis_connection import FAILURES_TO_OPEN, RedisConnection, RedisUnavailable


class Operation:
    """Does as it is told, and counts how often it was run."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.runs = 0

    async def __call__(self, redis: Redis) -> str:
        self.runs += 1
        if self._error is not None:
            raise self._error
        return "done"


@pytest.fixture
def states() -> list[bool]:
    return []


@pytest.fixture
async def connection(states: list[bool]) -> AsyncIterator[RedisConnection]:
    """Nobody listens where it leads."""
    connection = RedisConnection.open(f"redis://127.0.0.1:{free_port()}", on_state=states.append)
    yield connection
    await connection.close()


async def fail(connection: RedisConnection, *, times: int, error: Exception | None = None) -> None:
    for _ in range(times):
        with pytest.raises(RedisUnavailable):
            await connection.run(Operation(error or RedisConnectionError("away")))


async def test_five_failures_in_a_row_open_it(connection: RedisConnection) -> None:
    await fail(connection, times=FAILURES_TO_OPEN - 1)
    assert not connection.is_open
    await fail(connection, times=1)
    assert connection.is_open


async def test_a_success_ends_the_row(connection: RedisConnection) -> None:
    await fail(connection, times=FAILURES_TO_OPEN - 1)
    assert await connection.run(Operation()) == "done"
    await fail(connection, times=FAILURES_TO_OPEN - 1)
    assert not connection.is_open


async def test_a_server_that_has_become_a_replica_opens_it_at_once(connection: RedisConnection) -> None:
    await fail(connection, times=1, error=ReadOnlyError("a replica"))
    assert connection.is_open


async def test_while_it_is_open_no_operation_is_run(connection: RedisConnection) -> None:
    await fail(connection, times=FAILURES_TO_OPEN)
    operation = Operation()
    with pytest.raises(RedisUnavailable):
        await connection.run(operation)
    assert operation.runs == 0


@pytest.mark.parametrize(
    "error",
    [
        RedisConnectionError("refused"),
        TimeoutError(),
        InvalidResponse("no protocol"),
        OutOfMemoryError("full"),
        BusyLoadingError("loading"),
        ResponseError("BUSY a script runs"),
        ResponseError("MISCONF no snapshot could be written"),
        ValueError("a reply that is no number"),
    ],
    ids=lambda error: f"{type(error).__name__}-{error}".replace(" ", "_"),
)
async def test_a_server_that_cannot_serve_counts(connection: RedisConnection, error: Exception) -> None:
    await fail(connection, times=FAILURES_TO_OPEN, error=error)
    assert connection.is_open


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("WRONGTYPE it holds another kind"),
        ResponseError("ERR user_script:1: a fault"),
        ResponseError("BUSYKEY it is there already"),
        NoScriptError(""),
    ],
    ids=["wrong type", "script error", "busy key", "no script"],
)
async def test_a_command_that_is_refused_for_what_it_says_does_not_count(
    connection: RedisConnection, error: RedisError
) -> None:
    await fail(connection, times=FAILURES_TO_OPEN * 2, error=error)
    assert not connection.is_open


async def test_a_failure_has_its_cause_chained(connection: RedisConnection) -> None:
    cause = ResponseError("WRONGTYPE it holds another kind")
    with pytest.raises(RedisUnavailable) as failure:
        await connection.run(Operation(cause))
    assert failure.value.__cause__ is cause


async def test_a_cancelled_call_is_no_failure(connection: RedisConnection) -> None:
    async def wait_for_ever(redis: Redis) -> None:
        await asyncio.Event().wait()

    for _ in range(FAILURES_TO_OPEN):
        call = asyncio.create_task(connection.run(wait_for_ever, budget_s=60))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert not connection.is_open
    assert connection.failure_count == 0


async def test_it_tells_its_state_once_for_each_change(connection: RedisConnection, states: list[bool]) -> None:
    await fail(connection, times=FAILURES_TO_OPEN + 3)
    assert states == [True]
    assert connection.opened_count == 1


async def test_calls_that_are_refused_are_not_counted_as_failures(connection: RedisConnection) -> None:
    await fail(connection, times=FAILURES_TO_OPEN + 3)
    assert connection.failure_count == FAILURES_TO_OPEN


async def test_opening_is_one_log_line_that_names_the_class_of_the_cause(connection: RedisConnection) -> None:
    with structlog.testing.capture_logs() as lines:
        await fail(connection, times=FAILURES_TO_OPEN + 3)
        await asyncio.sleep(0)
    assert lines == [{"event": "redis_breaker_opened", "log_level": "warning", "cause": "ConnectionError"}]


async def test_its_log_lines_carry_nothing_of_the_call_that_opened_it(connection: RedisConnection) -> None:
    with (
        structlog.testing.capture_logs(processors=[merge_contextvars]) as lines,
        bound_contextvars(request_id="of one call"),
    ):
        await fail(connection, times=FAILURES_TO_OPEN)
        await asyncio.sleep(0)
    assert [line.get("request_id") for line in lines] == [None]


async def test_a_closed_connection_runs_nothing(connection: RedisConnection) -> None:
    await connection.close()
    operation = Operation()
    with pytest.raises(RedisUnavailable):
        await connection.run(operation)
    assert operation.runs == 0


async def test_closing_ends_the_recovery_and_can_be_repeated(connection: RedisConnection) -> None:
    before = asyncio.all_tasks()
    await fail(connection, times=FAILURES_TO_OPEN)
    await connection.close()
    await connection.close()
    assert asyncio.all_tasks() <= before


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@host:s3cret",
        "redis://:s3cret@[host",
        "http://:s3cret@host",
        "redis://:s3cret@host?s3cret=1",
        "redis://host?socket_timeout=s3cret",
    ],
)
def test_a_wrong_url_is_refused_without_a_word_of_it(url: str) -> None:
    with pytest.raises(ValueError, match="not the URL of a Redis") as refusal:
        RedisConnection.open(url)
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__
