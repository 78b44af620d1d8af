"""A connection that dies after COMMIT was sent leaves one effect, and whoever repeats the call finds it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import grpc.aio
import pytest

from askback.storage.v1.run_pb2 import RUN_STATUS_AWAITING_INPUT
from askback.storage.v1.session_service_pb2 import DeleteSessionRequest, ListMessagesRequest
from services.storage.server import storage_server
from services.storage.settings import StorageSettings
from tests.integration.storage.harness import Storage, draft, finish_request, refused

# CommandComplete, as PostgreSQL says that a transaction is committed.
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"


@dataclass
class Wire:
    """The way between the service and PostgreSQL, which can be cut where it hurts most."""

    host: str
    port: int
    cuts: int = 0
    """How many more replies to COMMIT are lost, each with its connection."""

    async def carry(self, asking: asyncio.StreamReader, service: asyncio.StreamWriter) -> None:
        answering, database = await asyncio.open_connection(self.host, self.port)

        async def ask() -> None:
            while asked := await asking.read(65_536):
                database.write(asked)
                await database.drain()

        async def answer() -> None:
            while answered := await answering.read(65_536):
                if self.cuts and COMMITTED in answered:
                    self.cuts -= 1
                    return
                service.write(answered)
                await service.drain()

        relays = [asyncio.create_task(ask()), asyncio.create_task(answer())]
        try:
            await asyncio.wait(relays, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for relay in relays:
                relay.cancel()
            await asyncio.gather(*relays, return_exceptions=True)
            for side in (service, database):
                side.transport.abort()


@asynccontextmanager
async def _wired(url: str) -> AsyncIterator[tuple[Wire, str]]:
    """A wire to the database, and the address that leads over it."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    wire = Wire(parts.hostname, parts.port)
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield wire, urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
    finally:
        server.close()


@pytest.fixture
async def wire(storage_database_url: str) -> AsyncIterator[tuple[Wire, Storage]]:
    """A storage server whose connections can be cut."""
    async with _wired(storage_database_url) as (wire, url):
        settings = StorageSettings.of(storage_address="127.0.0.1:0", database_url=url, drain_s=1)
        async with storage_server(settings) as running, grpc.aio.insecure_channel(running.address) as channel:
            yield wire, Storage(channel)


async def _contents(storage: Storage, user: str) -> list[str]:
    listed = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    return [message.content for message in listed.messages]


async def _lost(wire: Wire, call: Awaitable[object]) -> None:
    """The call took effect, and its caller is told that nobody knows."""
    wire.cuts = 1
    refusal = await refused(call)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
    assert wire.cuts == 0


async def test_a_run_whose_beginning_was_committed_unseen_is_found_by_the_repeat(
    wire: tuple[Wire, Storage], user: str
) -> None:
    cut, storage = wire
    await _lost(cut, storage.begin(user, request_id="r", holder_id="h"))
    assert await _contents(storage, user) == ["a question"]
    begun = await storage.begin(user, request_id="r", holder_id="h")
    assert (begun.already_begun, begun.is_holder) == (True, True)
    assert await _contents(storage, user) == ["a question"]
    assert (await storage.finish(begun)).session.message_count == 2


async def test_a_run_whose_end_was_committed_unseen_ends_the_same_again(wire: tuple[Wire, Storage], user: str) -> None:
    cut, storage = wire
    request = finish_request(
        await storage.begin(user), "which one?", status=RUN_STATUS_AWAITING_INPUT, opened_task=draft()
    )
    await _lost(cut, storage.runs.FinishRun(request, timeout=20))
    first = await storage.runs.FinishRun(request, timeout=20)
    assert first == await storage.runs.FinishRun(request, timeout=20)
    assert (first.reply.content, first.reply.position) == ("which one?", 2)
    assert first.session.pending_hitl_task_id == first.opened_task.task_id != ""
    assert await _contents(storage, user) == ["a question", "which one?"]


async def test_a_deletion_that_was_committed_unseen_is_told_to_the_repeat_and_deletes_nothing_else(
    wire: tuple[Wire, Storage], user: str
) -> None:
    cut, storage = wire
    await storage.turn(user)
    request = DeleteSessionRequest(user_id=user, session_id="s", request_id="r")
    await _lost(cut, storage.sessions.DeleteSession(request, timeout=20))
    await storage.begin(user, message="a new session")
    assert (await storage.sessions.DeleteSession(request, timeout=20)).deleted_message_count == 2
    assert await _contents(storage, user) == ["a new session"]
