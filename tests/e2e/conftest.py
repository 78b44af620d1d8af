"""The whole system in this process: real servers, real channels, the example documents."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from pydantic import SecretStr

from askback.client import AgentClient, KnowledgeClient, StorageClient
from services.agent.models.roles import Models
from services.agent.server import agent_server
from services.agent.settings import AgentSettings
from services.runtime.server import RunningServer
from services.storage.server import storage_server
from services.storage.settings import StorageSettings
from tests.e2e.harness import EXAMPLES, OpenAgent, System


@pytest.fixture(scope="session")
async def system(postgres_url: str, example_documents_url: str) -> AsyncIterator[System]:
    """One storage and one agent with the example documents; tests keep apart by their users."""
    name = f"e2e_{secrets.token_hex(4)}"
    await _execute(postgres_url, f"CREATE DATABASE {name}")
    database_url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    storage_settings = StorageSettings.of(storage_address="127.0.0.1:0", database_url=SecretStr(database_url))
    async with storage_server(storage_settings) as storage:
        async with _agent(storage.address, example_documents_url) as agent:
            async with (
                StorageClient(storage.address) as storage_client,
                AgentClient(agent.address) as agent_client,
                KnowledgeClient(agent.address) as knowledge_client,
            ):
                yield System(
                    storage=storage_client,
                    agent=agent_client,
                    knowledge=knowledge_client,
                    agent_server=agent,
                    storage_address=storage.address,
                    database_url=database_url,
                    knowledge_url=example_documents_url,
                )
    await _execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def open_agent(system: System) -> OpenAgent:
    """Another agent over the same storage and documents, with models or settings of the test's own."""

    def open_one(
        *, storage_address: str = "", models: Models | None = None, **settings: object
    ) -> AbstractAsyncContextManager[RunningServer]:
        return _agent(storage_address or system.storage_address, system.knowledge_url, models=models, **settings)

    return open_one


@pytest.fixture
def user() -> str:
    """A user whom no other test knows."""
    return f"user-{secrets.token_hex(8)}"


@pytest.fixture(scope="session")
def questions() -> list[dict[str, object]]:
    loaded: list[dict[str, object]] = json.loads((EXAMPLES / "questions.json").read_text())
    return loaded


@asynccontextmanager
async def _agent(
    storage_address: str, knowledge_url: str, *, models: Models | None = None, **settings: object
) -> AsyncIterator[RunningServer]:
    agent_settings = AgentSettings.of(
        agent_address="127.0.0.1:0",
        storage_address=storage_address,
        knowledge_url=SecretStr(knowledge_url),
        drain_s=1.0,
        **settings,
    )
    async with agent_server(agent_settings, models=models) as running:
        yield running


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
