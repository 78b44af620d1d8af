"""A connection that dies after COMMIT was sent leaves one effect, and whoever repeats the call finds it."""

from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import pytest

from askback.storage.v1.run_pb2 import RUN_STATUS_AWAITING_INPUT
from askback.storage.v1.session_pb2 import MESSAGE_TYPE_HUMAN, Message
from askback.storage.v1.session_service_pb2 import (
    AppendMessagesRequest,
    DeleteSessionRequest,
    ListMessagesRequest,
)
from services.storage.server import storage_server
from services.storage.settings import StorageSettings
from tests.integration.postgres_store.wire import AT_REST, COMMITTED, Wire, wire_to
from tests.integration.storage.harness import Storage, draft, finish_request, refused


@pytest.fixture
async def wire(storage_database_url: str) -> AsyncIterator[tuple[Wire, Storage]]:
    """A storage server whose connections can be cut."""
    async with wire_to(storage_database_url) as wire:
        settings = StorageSettings.of(storage_address="127.0.0.1:0", database_url=wire.url, drain_s=1)
        async with storage_server(settings) as running, grpc.aio.insecure_channel(running.address) as channel:
            yield wire, Storage(channel)


async def _contents(storage: Storage, user: str) -> list[str]:
    listed = await storage.sessions.ListMessages(ListMessagesRequest(user_id=user, session_id="s"))
    return [message.content for message in listed.messages]


async def _lost(wire: Wire, call: Awaitable[object]) -> None:
    """The call took effect, and its caller is told that nobody knows."""
    wire.lose(COMMITTED)
    await _unknown(wire, call)


async def _unknown(wire: Wire, call: Awaitable[object]) -> None:
    refusal = await refused(call)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
    assert not wire.loses


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


async def test_messages_whose_appending_was_committed_unseen_are_appended_once(
    wire: tuple[Wire, Storage], user: str
) -> None:
    cut, storage = wire
    message = Message(type=MESSAGE_TYPE_HUMAN, content="a note of which nobody heard again")
    request = AppendMessagesRequest(user_id=user, session_id="s", messages=[message], request_id="r")
    # One statement is all of it, and what answers that is all that can be lost.
    cut.lose(AT_REST, to=message.content.encode())
    await _unknown(cut, storage.sessions.AppendMessages(request, timeout=20))
    assert await _contents(storage, user) == [message.content]
    first = await storage.sessions.AppendMessages(request, timeout=20)
    assert first == await storage.sessions.AppendMessages(request, timeout=20)
    assert [(stored.content, stored.position) for stored in first.messages] == [(message.content, 1)]
    assert await _contents(storage, user) == [message.content]
