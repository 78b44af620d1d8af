"""The store over a PostgreSQL of its own, with short limits."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from services.storage.store.postgres import PostgresConversationStorage, PostgresLimits
from services.storage.store.postgres.database import Database

LIMITS = PostgresLimits(pool_size=2, pool_wait_s=0.1, statement_timeout_s=2, lock_timeout_s=0.5)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresConversationStorage]:
    store = await PostgresConversationStorage.open(database_url, limits=LIMITS)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Without tables."""
    database = Database(database_url, LIMITS)
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
async def administrator(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Another connection to the same database."""
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close()
