"""The counter that a user's sessions share is taken last, so that none of them waits for another."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from services.storage.models import MessageType, NewMessage, RunStatus
from services.storage.store.base import BeginRun, BegunRun, FinishRun
from services.storage.store.postgres import PostgresConversationStorage


async def _begin(store: PostgresConversationStorage) -> BegunRun:
    return await store.begin_run(BeginRun(user_id="u", session_id="s", message="Hello", lease=timedelta(minutes=1)))


async def _finish(store: PostgresConversationStorage, begun: BegunRun) -> object:
    return await store.finish_run(
        FinishRun(
            user_id="u",
            run_id=begun.run.run_id,
            fencing_token=begun.fencing_token,
            request_hash=b"finish",
            status=RunStatus.COMPLETED,
            reply=NewMessage(type=MessageType.AI, content="Hello to you"),
            metadata={},
        )
    )


@asynccontextmanager
async def _held_up(administrator: asyncpg.Connection, lock: str, call: Awaitable[object]) -> AsyncIterator[None]:
    """While the call waits for the lock; it is then let through, and must succeed."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with administrator.transaction(), asyncio.timeout(30):
        await administrator.execute(lock)
        task = asyncio.ensure_future(call)
        # Statistics are read once a transaction unless they are asked for anew.
        while not await administrator.fetchval(f"{waiting} AND pg_stat_clear_snapshot() IS NOT NULL"):
            assert not task.done(), "it did not wait"
            await asyncio.sleep(0.01)
        yield
    await task


async def _free_counters(administrator: asyncpg.Connection) -> int:
    """How many of the user's counters nobody holds."""
    return len(await administrator.fetch("SELECT FROM user_changes WHERE user_id = 'u' FOR UPDATE SKIP LOCKED"))


@pytest.mark.parametrize("lock", ["SELECT FROM sessions FOR UPDATE", "LOCK TABLE messages", "LOCK TABLE runs"])
async def test_beginning_a_run_takes_the_counter_last(
    store: PostgresConversationStorage, administrator: asyncpg.Connection, lock: str
) -> None:
    await _finish(store, await _begin(store))
    async with _held_up(administrator, lock, _begin(store)):
        assert await _free_counters(administrator) == 1


@pytest.mark.parametrize(
    "lock",
    ["SELECT FROM sessions FOR UPDATE", "LOCK TABLE messages IN EXCLUSIVE MODE", "SELECT FROM runs FOR UPDATE"],
)
async def test_finishing_a_run_takes_the_counter_last(
    store: PostgresConversationStorage, administrator: asyncpg.Connection, lock: str
) -> None:
    begun = await _begin(store)
    async with _held_up(administrator, lock, _finish(store, begun)):
        assert await _free_counters(administrator) == 1


async def test_deleting_a_session_takes_the_counter_after_its_messages(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    await _finish(store, await _begin(store))
    async with _held_up(administrator, "SELECT FROM messages FOR UPDATE", store.delete_session("u", "s")):
        assert await _free_counters(administrator) == 1
