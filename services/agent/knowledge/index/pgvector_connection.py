"""Connections to the index's database: how they are made, bounded, and given up."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool

from services.agent.errors import KnowledgeUnavailable
from services.agent.knowledge.index.base import IndexUnusable

_POOL_SIZE: Final = 5
_CONNECT_TIMEOUT_S: Final = 3
_COMMAND_TIMEOUT_S: Final = 30
_READ_LIMIT_S: Final = 5
"""How long a search or a list may take in all: a server that has frozen must not hold a turn for longer."""


# SQLSTATEs that mean that the server does not serve us now: connection, login, no such database, resources,
# shutdown, a database that takes no connections, read-only.
_UNAVAILABLE_STATES: Final = ("08", "28", "3D", "53", "57", "55000", "25006")


def make_engine(url: str) -> AsyncEngine:
    # The driver reads the URL itself, so that whatever libpq allows in one (sslmode, several hosts) works.
    dsn = url.replace("postgresql+asyncpg://", "postgresql://", 1)

    async def connect() -> Any:
        return await asyncpg.connect(dsn, timeout=_CONNECT_TIMEOUT_S, command_timeout=_COMMAND_TIMEOUT_S)

    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_SIZE,
        pool_timeout=_CONNECT_TIMEOUT_S,
        pool_pre_ping=True,
        # Error texts go to the log, and documents' words must not.
        hide_parameters=True,
    )


async def connect_once(engine: AsyncEngine) -> None:
    """Raises IndexUnusable where the URL itself is at fault: neither time nor another try would help."""
    try:
        async with engine.connect():
            return
    except (InterfaceError, ProgrammingError, OverflowError, ValueError) as error:
        # By its type alone: its text may hold the URL.
        cause = getattr(error, "orig", None) or error
        raise IndexUnusable(f"cannot be used: {type(cause.__cause__ or cause).__name__}") from error


@contextmanager
def unavailable_where_unreachable() -> Iterator[None]:
    try:
        yield
    except (OSError, TimeoutError, PoolTimeout) as error:
        raise KnowledgeUnavailable from error
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or ""
        if error.connection_invalidated or state.startswith(_UNAVAILABLE_STATES):
            raise KnowledgeUnavailable from error
        raise


def is_fully_used(engine: AsyncEngine) -> bool:
    pool = engine.pool
    return isinstance(pool, QueuePool) and pool.checkedout() >= 2 * _POOL_SIZE


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One snapshot for all statements, for a few seconds at most; raises KnowledgeUnavailable."""
    with unavailable_where_unreachable():
        async with asyncio.timeout(_READ_LIMIT_S), engine.connect() as connection:
            try:
                await connection.execution_options(isolation_level="REPEATABLE READ")
                transaction = await connection.begin()
                yield connection
            except (TimeoutError, asyncio.CancelledError):
                # Whoever does not answer is not asked for a ROLLBACK, which would take as long again.
                await connection.invalidate()
                raise
            try:
                await transaction.rollback()
            except (OSError, TimeoutError, DBAPIError):
                # Nothing was written, so what was read stands; the connection alone is lost.
                await connection.invalidate()


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One transaction; raises KnowledgeUnavailable."""
    with unavailable_where_unreachable():
        async with engine.begin() as connection:
            yield connection
