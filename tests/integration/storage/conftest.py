"""Two storage servers on one database, as two replicas are; each test has users of its own."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import grpc.aio
import pytest

from askback.storage.v1.run_service_pb2 import BeginRunResponse
from services.storage.server import storage_server
from services.storage.settings import StorageSettings
from tests.integration.storage.harness import EndLease, Storage, unique


@pytest.fixture(scope="session")
async def storage_database_url(postgres_url: str) -> AsyncIterator[str]:
    """One database for all tests of storage: making and migrating one for each would cost more than they do."""
    name = f"storage_{secrets.token_hex(8)}"
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


@pytest.fixture(scope="session")
async def storage(storage_database_url: str, valkey_url: str) -> AsyncIterator[Storage]:
    async with _replica(storage_database_url, valkey_url) as replica:
        yield replica


@pytest.fixture(scope="session")
async def other_storage(storage: Storage, storage_database_url: str, valkey_url: str) -> AsyncIterator[Storage]:
    """Another replica on the same database."""
    async with _replica(storage_database_url, valkey_url) as replica:
        yield replica


@pytest.fixture
def user() -> str:
    return unique("user")


@pytest.fixture
def end_lease(storage_database_url: str) -> EndLease:
    """Lets a run's lease be over, without the wait."""

    async def end(begun: BeginRunResponse) -> None:
        connection = await asyncpg.connect(storage_database_url)
        try:
            await connection.execute(
                "UPDATE runs SET lease_expire_time = clock_timestamp() WHERE user_id = $1 AND run_id = $2",
                begun.run.user_id,
                begun.run.run_id,
            )
        finally:
            await connection.close()

    return end


@asynccontextmanager
async def _replica(database_url: str, redis_url: str) -> AsyncIterator[Storage]:
    settings = StorageSettings.of(
        storage_address="127.0.0.1:0", database_url=database_url, redis_url=redis_url, drain_s=1
    )
    options = [("grpc.max_receive_message_length", 16 * 1_024 * 1_024)]
    async with (
        storage_server(settings) as running,
        grpc.aio.insecure_channel(running.address, options=options) as channel,
    ):
        yield Storage(channel)
