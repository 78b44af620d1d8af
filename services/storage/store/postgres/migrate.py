"""Brings a database's tables to this version."""

from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import StaticPool

from services.storage.store.postgres.database import PostgresLimits, driver_dsn
from services.storage.store.postgres.failures import FAILURES, as_port_error

_MIGRATIONS = Path(__file__).parent / "migrations"
# Any number does, as long as every version of the service takes the same one.
_LOCK = 0x61736B6261636B


async def migrate(url: str, limits: PostgresLimits) -> None:
    """Runs what migrations are missing, in one transaction; any number of replicas may start at once.

    The lock is the transaction's, so that it holds behind a pooler as well, and dies with its holder. alembic
    keeps its context in globals: a process must not migrate two databases at once.
    """
    try:
        # Without time limits on statements: a migration may take its time.
        connection = await asyncpg.connect(
            driver_dsn(url),
            timeout=limits.connect_timeout_s,
            server_settings={"application_name": "askback-storage"},
            statement_cache_size=0,
        )
        try:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(f"SET LOCAL search_path = 'public'; SELECT pg_advisory_xact_lock({_LOCK})")
                await _upgrade_over(connection)
        finally:
            await connection.close(timeout=limits.connect_timeout_s)
    except DBAPIError as error:
        cause = _driver_error(error)
        raise as_port_error(cause, statement_timeout_s=limits.statement_timeout_s) from cause
    except FAILURES as error:
        raise as_port_error(error, statement_timeout_s=limits.statement_timeout_s) from error


async def _upgrade_over(connection: asyncpg.Connection) -> None:
    """Within the connection's transaction, of which SQLAlchemy's own become savepoints.

    So whatever else it asks the server, to get to know it, reaches the same one behind a pooler, too; and what
    it prepares there has no name that another process may have given before.
    """

    async def connected(*_arguments: Any, **_options: Any) -> asyncpg.Connection:
        return connection

    engine = create_async_engine(
        "postgresql+asyncpg://",
        connect_args={
            "async_creator_fn": connected,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": str,
        },
        poolclass=StaticPool,
        hide_parameters=True,
    )
    async with engine.begin() as begun:
        await begun.run_sync(_upgrade)


def _driver_error(error: Exception) -> Exception:
    adapted = getattr(error, "orig", None) or error
    cause = adapted.__cause__
    return cause if isinstance(cause, Exception) else adapted


def _upgrade(connection: Connection) -> None:
    config = Config()
    # ConfigParser reads "%" as the start of an interpolation.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
