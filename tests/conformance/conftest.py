"""The stores that the suite runs over: each rule holds for every one of them."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from services.storage.store.base import ConversationStorage
from services.storage.store.postgres import PostgresConversationStorage
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import Conversation


@asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[ConversationStorage]:
    store = await PostgresConversationStorage.open(url)
    try:
        yield store
    finally:
        await store.close()


_STORES: dict[str, Callable[[str], AbstractAsyncContextManager[ConversationStorage]]] = {"postgres": _postgres}


@pytest.fixture(scope="session")
async def suite_database_url(postgres_url: str) -> AsyncIterator[str]:
    """One database for the whole suite: a test is alone with the user that it makes."""
    name = f"conformance_{secrets.token_hex(8)}"
    administrator = await asyncpg.connect(postgres_url)
    try:
        await administrator.execute(f"CREATE DATABASE {name}")
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await administrator.close()


@pytest.fixture(scope="session", params=list(_STORES))
async def store(request: pytest.FixtureRequest, suite_database_url: str) -> AsyncIterator[ConversationStorage]:
    async with _STORES[request.param](suite_database_url) as store:
        yield store


@pytest.fixture
def conversation(store: ConversationStorage) -> Conversation:
    """A session that does not exist yet, of a user nobody knows yet."""
    return Conversation(store)


@pytest.fixture
async def ageing(suite_database_url: str) -> AsyncIterator[Ageing]:
    connection = await asyncpg.connect(suite_database_url)
    try:
        yield Ageing(connection)
    finally:
        await connection.close()
