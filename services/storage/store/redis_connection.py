"""The one way to Redis: within a budget, without a second try, behind a circuit breaker.

The breaker is our own rather than a library's for the sake of two rules: no caller pays for the question
whether Redis is back, and before each such question the idle connections are let go, so that one that leads
nowhere, or to a server that has become a replica, is not what is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any, Self, TypeVar

import structlog
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

MAX_CONNECTIONS = 32
FAILURES_TO_OPEN = 5
OPEN_FOR_S = 1.0
PROBE_KEY = "askback:probe"
OPTIONS: Mapping[str, Any] = {
    "max_connections": MAX_CONNECTIONS,
    # The driver's default tries ten times again.
    "retry": Retry(NoBackoff(), 0),
    "retry_on_error": [],
    "retry_on_timeout": False,
    # One limit holds over the whole operation; the driver's would cost a task for each command.
    "socket_timeout": None,
    "socket_connect_timeout": None,
    "health_check_interval": 0,
    "decode_responses": False,
    # On RESP3 the driver takes an idle connection as it is, even one that was closed or still has a reply to
    # come: it might be a pushed message. RESP2 has none.
    "protocol": 2,
    # It would cost each new connection a round trip.
    "driver_info": None,
}
"""What holds whatever the URL says."""

_SERVER_STATES = (OutOfMemoryError, ReadOnlyError, NoPermissionError, ClusterDownError)
_SERVER_STATE_CODES = frozenset({"BUSY", "MISCONF", "NOREPLICAS", "UNKILLABLE"})
"""Of replies that the driver has no class for."""

_logger = structlog.get_logger()
_T = TypeVar("_T")


class RedisUnavailable(Exception):
    """Redis did not do what was asked; of a write, nothing is known. The cause is chained, where there is one."""


class RedisConnection:
    """Runs operations on Redis, and knows when it is no use to ask.

    An operation speaks to the client that it is given, one command after another, and does nothing else. All
    the keys of a command share a slot: it names one key, or keys with the same hash tag.

    Five failures in a row open the breaker, or one write refused as READONLY: every call then fails at once,
    until a write of our own, tried each second, is taken. A reply that speaks of the caller's command (a wrong
    type, a script's error) is a failure of that call alone. `on_state` is told True as the breaker opens, and
    False as it closes.
    """

    opened_count: int
    """How often the breaker has opened."""
    failure_count: int
    """Operations that have failed, without those refused by an open breaker."""

    def __init__(self, pool: ConnectionPool, *, budget_s: float, on_state: Callable[[bool], None] | None) -> None:
        self._pool = pool
        self._client = Redis(connection_pool=pool)
        self._budget_s = budget_s
        self._on_state = on_state
        # The pool has no waiting room of its own: the driver's pool that has one can lose a connection for
        # good when a call that waits to give it back is cancelled.
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._failures_in_a_row = 0
        self._is_open = False
        self._is_closed = False
        self._recovery: asyncio.Task[None] | None = None
        self.opened_count = 0
        self.failure_count = 0

    @classmethod
    def open(cls, url: str, *, budget_s: float = 0.05, on_state: Callable[[bool], None] | None = None) -> Self:
        """Connects to nothing yet. `budget_s` is an operation's whole time, where it is given no other.

        Raises ValueError, without a word of the URL, where it is none of redis://, rediss:// or unix://.
        """
        try:
            options: dict[str, Any] = {**parse_url(url), **OPTIONS}
            pool = ConnectionPool(**options)
            # It connects to nothing, and refuses options that there are not.
            pool.connection_class(**pool.connection_kwargs)
        except Exception:
            # Their texts quote the URL, which may hold a password.
            raise ValueError("not the URL of a Redis: redis://, rediss:// or unix://") from None
        return cls(pool, budget_s=budget_s, on_state=on_state)

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open, so that every call fails at once."""
        return self._is_open

    async def run(self, operation: Callable[[Redis], Awaitable[_T]], *, budget_s: float | None = None) -> _T:
        """What the operation returns, within the budget: the wait for a connection, connecting and all commands.

        Raises RedisUnavailable on any failure, and at once while the breaker is open. The connection of an
        operation that was cut short is dropped with the replies that are still to come on it.
        """
        if self._is_open or self._is_closed:
            raise RedisUnavailable("Redis is not asked at present")
        try:
            result = await self._perform(operation, self._budget_s if budget_s is None else budget_s)
        except Exception as error:
            self.failure_count += 1
            if _is_of_the_command(error):
                self._failures_in_a_row = 0
            else:
                self._count_failure(error)
            raise RedisUnavailable(type(error).__name__) from error
        self._failures_in_a_row = 0
        return result

    async def close(self) -> None:
        """Lets go of every connection. Calls still under way, and later ones, raise RedisUnavailable."""
        self._is_closed = True
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        await self._disconnect(all_of_them=True)

    async def _perform(self, operation: Callable[[Redis], Awaitable[_T]], budget_s: float) -> _T:
        async with asyncio.timeout(budget_s), self._slots:
            return await operation(self._client)

    def _count_failure(self, error: Exception) -> None:
        self._failures_in_a_row += 1
        # A server that has become a replica answers reads, and so would keep us from its successor for good.
        opens = self._failures_in_a_row >= FAILURES_TO_OPEN or isinstance(error, ReadOnlyError)
        if not opens or self._is_open or self._is_closed:
            return
        self._is_open = True
        self.opened_count += 1
        # In no caller's context: the recovery belongs to none, and neither do its log lines.
        self._recovery = asyncio.create_task(self._recover(type(error).__name__), context=Context())
        self._tell_state()

    async def _recover(self, cause: str) -> None:
        _logger.warning("redis_breaker_opened", cause=cause)
        while True:
            await asyncio.sleep(OPEN_FOR_S)
            await self._disconnect(all_of_them=False)
            if await self._takes_a_write():
                break
        self._is_open = False
        self._failures_in_a_row = 0
        _logger.info("redis_breaker_closed")
        self._tell_state()

    async def _takes_a_write(self) -> bool:
        try:
            await self._perform(_write_probe, self._budget_s)
        except Exception:
            # Whatever it is: with the recovery dead, the breaker would stay open for good.
            return False
        return True

    async def _disconnect(self, *, all_of_them: bool) -> None:
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(self._budget_s):
                await self._pool.disconnect(inuse_connections=all_of_them)

    def _tell_state(self) -> None:
        if self._on_state is not None:
            self._on_state(self._is_open)


async def _write_probe(client: Redis) -> None:
    await client.set(PROBE_KEY, b"", px=1_000)


def _is_of_the_command(error: Exception) -> bool:
    """Whether Redis is well, and refused the command for what it says."""
    return (
        isinstance(error, ResponseError)
        and not isinstance(error, _SERVER_STATES)
        and str(error).partition(" ")[0] not in _SERVER_STATE_CODES
    )
