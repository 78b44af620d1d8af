"""Brings a database's tables to this version."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

_MIGRATIONS = Path(__file__).parent / "migrations"
# Any number does, as long as every version of the service takes the same one.
_LOCK = 0x61736B6261636B


async def migrate(engine: AsyncEngine) -> None:
    """Runs what migrations are missing, in one transaction; any number of replicas may start at once.

    The lock is the transaction's, so that it holds behind a pooler as well, and dies with its holder. alembic
    keeps its context in globals: a process must not migrate two databases at once.
    """
    async with engine.begin() as connection:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = Config()
    # ConfigParser reads "%" as the start of an interpolation.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
