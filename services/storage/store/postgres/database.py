"""Connections and transactions: the one place where they are taken, limited, retried and given back."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import asyncpg
import structlog
from sqlalchemy import Row, TextClause, event, text
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from services.storage.errors import DatabaseUnavailable
from services.storage.store.postgres.failures import FAILURES, as_service_error, is_retryable
from services.storage.store.postgres.probe import Probe

T = TypeVar("T")

_ATTEMPTS = 3
_FIRST_BACKOFF_S = 0.01

_LOOK = text("SELECT current_setting('transaction_read_only') = 'off'")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresLimits:
    """How much of the database one process takes, and how long it waits for it."""

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


class Database:
    """A pool of connections, each autocommitting outside of `transaction`."""

    def __init__(self, url: str, limits: PostgresLimits):
        self._limits = limits
        self._engine = _engine(url, limits, pool_size=limits.pool_size)
        self._spare = _engine(url, replace(limits, ping_after_idle_s=0), pool_size=1)
        self._probe = Probe(self._look)

    async def close(self) -> None:
        await self._probe.close()
        await self._spare.dispose()
        await self._engine.dispose()

    async def takes_writes(self) -> bool:
        """Asked on a connection of its own, however busy the others are. Raises what `statement` raises."""
        try:
            return await self._probe.ask()
        except FAILURES as error:
            raise await self._failure(error) from error

    async def _look(self) -> bool:
        async with self._connection(self._spare) as connection:
            return bool((await connection.execute(_LOOK)).scalar_one())

    async def transaction(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Commits what `work` does once it returns; run anew where PostgreSQL asks for that.

        `work` may thus run several times, each time from nothing, and must have no effect but on its connection.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._connection(self._engine) as connection:
                    await connection.execution_options(isolation_level="READ COMMITTED")
                    async with connection.begin():
                        return await work(connection)
            except FAILURES as error:
                if not is_retryable(error) or attempt == _ATTEMPTS:
                    raise await self._failure(error) from error
            await asyncio.sleep(random.uniform(0.5, 1.5) * _FIRST_BACKOFF_S * 4**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def statement(self, statement: TextClause, parameters: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """Runs one statement, which commits by itself, and returns its rows: one snapshot, one round trip."""
        try:
            async with self._connection(self._engine) as connection:
                return (await connection.execute(statement, parameters)).all()
        except FAILURES as error:
            raise await self._failure(error) from error

    @asynccontextmanager
    async def _connection(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        async with engine.connect() as connection:
            try:
                yield connection
            except TimeoutError:
                # The server did not answer in time: nothing more is to be said on this connection, least of
                # all a ROLLBACK, which would wait as long again.
                await connection.invalidate()
                raise

    async def _failure(self, error: Exception) -> Exception:
        failure = as_service_error(error, statement_timeout_s=self._limits.statement_timeout_s)
        if isinstance(error, PoolTimeout) and not await self._answers():
            # Its connections are not at work, but wait for a server that is silent.
            failure = DatabaseUnavailable()
        if failure is None:
            return error
        if isinstance(failure, DatabaseUnavailable):
            cause = getattr(error, "orig", None) or error
            _log.warning(
                "database_unavailable", cause=type(cause).__name__, sqlstate=getattr(cause, "sqlstate", None) or ""
            )
        return failure

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(self._limits.pool_wait_s):
                await self._probe.ask()
        except FAILURES:
            return False
        return True


def _engine(url: str, limits: PostgresLimits, *, pool_size: int) -> AsyncEngine:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=_connector(
            url,
            connect_timeout_s=limits.connect_timeout_s,
            # The server's own limit comes first; this is for a server that has stopped answering.
            command_timeout_s=limits.statement_timeout_s + 2,
            server_settings={
                "statement_timeout": _milliseconds(limits.statement_timeout_s),
                "lock_timeout": _milliseconds(limits.lock_timeout_s),
                # A process that froze within a transaction must not hold its locks for ever.
                "idle_in_transaction_session_timeout": _milliseconds(2 * limits.statement_timeout_s),
            },
        ),
        isolation_level="AUTOCOMMIT",
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=limits.pool_wait_s,
        # An error's text would hold what users wrote.
        hide_parameters=True,
    )
    _ping_after_idle(engine, idle_s=limits.ping_after_idle_s)
    return engine


@asynccontextmanager
async def unlimited_engine(url: str, limits: PostgresLimits) -> AsyncIterator[AsyncEngine]:
    """An engine for work that may take its time, such as migrations; it keeps no connection."""
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=_connector(
            url, connect_timeout_s=limits.connect_timeout_s, command_timeout_s=None, server_settings={}
        ),
        poolclass=NullPool,
        hide_parameters=True,
    )
    try:
        yield engine
    except FAILURES as error:
        raise as_service_error(error, statement_timeout_s=limits.statement_timeout_s) or error from error
    finally:
        await engine.dispose()


def _connector(
    url: str, *, connect_timeout_s: float, command_timeout_s: float | None, server_settings: Mapping[str, str]
) -> Callable[[], Awaitable[Any]]:
    # The driver reads the URL itself, so that whatever libpq allows in one (sslmode, several hosts) works.
    dsn = url.replace("postgresql+asyncpg://", "postgresql://", 1)

    async def connect() -> Any:
        return await asyncpg.connect(
            dsn,
            timeout=connect_timeout_s,
            command_timeout=command_timeout_s,
            server_settings={
                "application_name": "askback-storage",
                "search_path": "public",
                # Compiling pays for long scans; every statement here is short.
                "jit": "off",
                **server_settings,
            },
        )

    return connect


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1_000)))


def _ping_after_idle(engine: AsyncEngine, *, idle_s: float) -> None:
    """Tries a connection that has lain idle before it is handed out.

    A pool's own pre-ping costs a round trip on every call; a busy connection proves by itself that it lives.
    """

    @event.listens_for(engine.sync_engine, "checkin")
    def _(_connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def _(connection: Any, record: Any, _proxy: Any) -> None:
        idle_since = record.info.get("idle_since")
        if idle_since is None or time.monotonic() - idle_since < idle_s:
            return
        try:
            engine.sync_engine.dialect.do_ping(connection)
        except FAILURES as error:
            raise InvalidatePoolError from error
        except engine.sync_engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error
