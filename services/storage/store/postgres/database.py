"""Connections and transactions: the one place where they are taken, limited, retried and given back."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar

import asyncpg
import structlog
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from services.runtime.errors import ServiceError
from services.storage.errors import DatabaseUnavailable
from services.storage.store.postgres.failures import (
    FAILURES,
    PoolTimeout,
    as_port_error,
    is_of_server,
    is_retryable,
    sqlstate,
)
from services.storage.store.postgres.pool import Driver, Pool
from services.storage.store.postgres.probe import Probe

T = TypeVar("T")

_ATTEMPTS = 3
_FIRST_BACKOFF_S = 0.01
# How often is looked whether a call waits for longer than a server at work needs, and how long that is.
_GLANCE_S = 0.5
_LONG_S = 0.5
# How long the server's own limit is waited for before the connection counts as dead.
_GRACE_S = 1.0
# One statement, and by the simple protocol one message each way, so that it works behind any pooler.
_TAKES_WRITES = "SELECT 1 WHERE current_setting('transaction_read_only') = 'off'"

SESSION_TTL = "askback.session_ttl"
"""A setting of each connection that statements read: an interval, unset where sessions are kept for good."""

_DIALECT = dialect()  # type: ignore[no-untyped-call]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresLimits:
    """How much of the database one process takes, how long it waits for it, and how long it keeps things there."""

    pool_size: int = 16
    """Connections at most, beside one for `Database.takes_writes`."""
    pool_wait_s: float = 0.25
    """How long a call waits for a free one before it is OVERLOADED."""
    connect_timeout_s: float = 3.0
    statement_timeout_s: float = 10.0
    lock_timeout_s: float = 5.0
    """How long a statement waits for another transaction before it ends as CONTENTION."""
    ping_after_idle_s: float = 1.0
    """A connection that has lain idle for longer is tried before it is used."""
    close_after_idle_s: float = 300.0
    """A connection that nobody has needed for longer gives its server process back."""
    silence_s: float = 2.0
    """A server that leaves a trivial question unanswered for as long is taken for frozen, and calls stop waiting."""
    prepared_statements: bool = True
    """False behind a pooler in transaction mode, where two statements may meet two servers."""
    session_ttl: timedelta | None = None
    """How long a session without a time of its own is kept after its last change; None: for good."""


class Row(asyncpg.Record):  # type: ignore[misc]
    """A row whose columns are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Statement:
    """SQL with parameters by `:name`, read once."""

    __slots__ = ("_names", "sql")

    def __init__(self, sql: str):
        compiled = text(sql).compile(dialect=_DIALECT)
        self.sql = str(compiled)
        self._names: tuple[str, ...] = tuple(getattr(compiled, "positiontup", None) or ())

    def arguments(self, parameters: Mapping[str, Any]) -> list[Any]:
        return [parameters[name] for name in self._names]


class Connection:
    """One connection within its transaction."""

    def __init__(self, driver: asyncpg.Connection):
        self._driver = driver

    async def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
        found: list[Row] = await self._driver.fetch(statement.sql, *statement.arguments(parameters))
        return found

    async def row(self, statement: Statement, parameters: Mapping[str, Any]) -> Row | None:
        """The first one."""
        found: Row | None = await self._driver.fetchrow(statement.sql, *statement.arguments(parameters))
        return found

    async def one(self, statement: Statement, parameters: Mapping[str, Any]) -> Row:
        """The first one, of a statement that cannot but have one."""
        row = await self.row(statement, parameters)
        if row is None:
            raise LookupError("a statement that always returns a row returned none")
        return row

    async def value(self, statement: Statement, parameters: Mapping[str, Any]) -> Any:
        """The first column of the first row; None without one."""
        return await self._driver.fetchval(statement.sql, *statement.arguments(parameters))

    async def execute(self, statement: Statement, parameters: Mapping[str, Any]) -> None:
        await self._driver.fetch(statement.sql, *statement.arguments(parameters))


class Database:
    """A pool of connections, opened by the first calls and closed by `close`."""

    def __init__(self, url: str, limits: PostgresLimits):
        self._limits = limits
        self._connect = partial(asyncpg.connect, **_connect_arguments(url, limits))
        self._begin = _begin(limits)
        self._pool = Pool(
            self._connect,
            size=limits.pool_size,
            wait_s=limits.pool_wait_s,
            ping_after_idle_s=limits.ping_after_idle_s,
            close_after_idle_s=limits.close_after_idle_s,
        )
        self._probe = Probe(self._look)
        self._asked: Driver | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    async def close(self) -> None:
        """Calls under way have a moment to end; later ones find the database unavailable."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._probe.close()
        if self._asked is not None:
            self._asked.terminate()
        await self._pool.close()

    async def takes_writes(self) -> bool:
        """Asked on a connection of its own, however busy the others are. Raises what `rows` raises."""
        try:
            return await self._probe.ask()
        except FAILURES as error:
            await self._fail(error)

    async def answers(self) -> bool:
        """Whether the server says anything within the time that a call waits for a connection."""
        try:
            async with asyncio.timeout(self._limits.pool_wait_s):
                await self._probe.ask()
        except FAILURES:
            return False
        return True

    async def transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Commits what `work` does once it returns; run anew where PostgreSQL asks for that.

        `work` may thus run several times, each time from nothing, and whatever effect it has beside that on its
        connection must bear it: to be had again, and to stay where nothing is committed.
        """
        return await self._attempt(partial(_in_transaction, begin=self._begin, work=work))

    async def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
        """Runs one statement, which commits by itself, and returns its rows: one snapshot, one round trip.

        Run anew where PostgreSQL asks for that, as a transaction is.
        """
        if not self._limits.prepared_statements:
            # What describes a statement and what runs it are two messages, and only a transaction holds a
            # pooler to one server for both.
            return await self.transaction(lambda connection: connection.rows(statement, parameters))
        arguments = statement.arguments(parameters)
        found: list[Row] = await self._attempt(lambda driver: driver.fetch(statement.sql, *arguments))
        return found

    async def _attempt(self, work: Callable[[Driver], Awaitable[T]]) -> T:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._once(work)
            except FAILURES as error:
                if not is_retryable(error) or attempt == _ATTEMPTS:
                    await self._fail(error)
            await asyncio.sleep(random.uniform(0.5, 1.5) * _FIRST_BACKOFF_S * 4**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, work: Callable[[Driver], Awaitable[T]]) -> T:
        if self._watching is None and not self._closed:
            self._watching = asyncio.create_task(self._watch(), name="watch for calls that wait in vain")
        driver = await self._pool.take()
        try:
            result = await work(driver)
        except BaseException as failure:
            if is_of_server(failure):
                # A new connection may lead to another server.
                driver.terminate()
            await self._pool.take_back(driver, failure)
            raise
        self._pool.give_back(driver)
        return result

    async def _watch(self) -> None:
        """Calls need not wait for their own limit where the server answers nobody."""
        while True:
            await asyncio.sleep(_GLANCE_S)
            try:
                self._pool.trim()
                if self._pool.longest_wait_s() >= _LONG_S:
                    await self._probe.ask()
            except Exception as error:
                # Whatever a server may say: with this dead, calls would wait in vain from then on.
                _log.debug("database_asked_in_vain", cause=type(error).__name__)

    async def _look(self) -> bool:
        try:
            answer = await self._ask()
        except TimeoutError:
            self._pool.cut()
            raise
        if not answer and self._asked is not None:
            # Another server may take the place of this one.
            self._asked.terminate()
        return answer

    async def _ask(self) -> bool:
        if self._asked is not None and not self._asked.is_closed():
            try:
                return await self._takes_writes(self._asked)
            except TimeoutError:
                raise
            except FAILURES:
                # It has died of old age; a new one tells more.
                self._asked.terminate()
        if self._closed:
            raise asyncpg.InterfaceError("the database is closed")
        self._asked = await self._connect(timeout=self._limits.silence_s)
        return await self._takes_writes(self._asked)

    async def _takes_writes(self, driver: Driver) -> bool:
        try:
            told = await driver.execute(_TAKES_WRITES, timeout=self._limits.silence_s)
        except BaseException:
            driver.terminate()
            raise
        return bool(told == "SELECT 1")

    async def _fail(self, error: Exception) -> NoReturn:
        failure = as_port_error(error, statement_timeout_s=self._limits.statement_timeout_s)
        if isinstance(error, PoolTimeout) and not await self.answers():
            # Its connections are not at work, but wait for a server that is silent.
            failure = DatabaseUnavailable()
        if isinstance(failure, DatabaseUnavailable):
            _log.warning("database_unavailable", cause=type(error).__name__, sqlstate=sqlstate(error))
        # A fault's cause quotes what users wrote, and a fault is logged with its cause.
        raise failure from (error if isinstance(failure, ServiceError) else None)


async def _in_transaction(driver: Driver, *, begin: str, work: Callable[[Connection], Awaitable[T]]) -> T:
    await driver.execute(begin)
    result = await work(Connection(driver))
    if await driver.execute("COMMIT") != "COMMIT":
        # A statement had failed and `work` went on: PostgreSQL rolls back without calling that an error.
        raise asyncpg.InFailedSQLTransactionError("nothing was committed")
    return result


def _connect_arguments(url: str, limits: PostgresLimits) -> Mapping[str, Any]:
    settings = {"application_name": "askback-storage"}
    if limits.prepared_statements:
        settings |= _server_settings(limits)
    return {
        "dsn": driver_dsn(url),
        "timeout": limits.connect_timeout_s,
        # The server's own limit comes first; this is for a connection over which nothing comes any more.
        "command_timeout": limits.statement_timeout_s + _GRACE_S,
        "server_settings": settings,
        "statement_cache_size": 512 if limits.prepared_statements else 0,
        "connection_class": Driver,
        "record_class": Row,
    }


def driver_dsn(url: str) -> str:
    """The URL as the driver reads it by itself, so that whatever libpq allows in one (sslmode, several hosts) works."""
    return url.replace("postgresql+asyncpg://", "postgresql://", 1)


def _server_settings(limits: PostgresLimits) -> dict[str, str]:
    kept = {} if limits.session_ttl is None else {SESSION_TTL: f"{limits.session_ttl.total_seconds():f} seconds"}
    return kept | {
        "search_path": "public",
        # What a single statement relies on, as BEGIN says for the others.
        "default_transaction_isolation": "read committed",
        # Compiling pays for long scans; every statement here is short.
        "jit": "off",
        "statement_timeout": _milliseconds(limits.statement_timeout_s),
        "lock_timeout": _milliseconds(limits.lock_timeout_s),
        # A process that froze within a transaction must not hold its locks for ever.
        "idle_in_transaction_session_timeout": _milliseconds(2 * limits.statement_timeout_s),
    }


def _begin(limits: PostgresLimits) -> str:
    """What a transaction starts with, in one round trip."""
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    if limits.prepared_statements:
        return begin
    # A pooler refuses settings at the start of a connection, and would hand what is set for good to others.
    return "; ".join([begin, *(f"SET LOCAL {name} = '{value}'" for name, value in _server_settings(limits).items())])


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1_000)))
