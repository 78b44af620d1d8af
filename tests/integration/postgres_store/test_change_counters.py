"""The counter that a user's sessions share is taken last, so that none of them waits for another."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from services.storage.models import MessageType, NewMessage, RunStatus
from services.storage.store.commands import AppendMessages, BeginRun, FinishRun, SaveSession, UpdateSession
from services.storage.store.postgres import PostgresConversationStorage
from services.storage.store.results import BegunRun

LEASE = timedelta(minutes=1)
RUN_OUT = timedelta(0)


async def _begin(store: PostgresConversationStorage, *, lease: timedelta = LEASE) -> BegunRun:
    return await store.begin_run(BeginRun(user_id="u", session_id="s", message="Hello", lease=lease))


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


@pytest.mark.parametrize(
    "lock",
    ["SELECT FROM sessions FOR UPDATE", "LOCK TABLE messages IN EXCLUSIVE MODE", "LOCK TABLE runs IN EXCLUSIVE MODE"],
)
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


@pytest.mark.parametrize("lock", ["SELECT FROM sessions FOR UPDATE", "SELECT FROM runs FOR UPDATE"])
async def test_ending_a_dead_run_takes_the_counter_last(
    store: PostgresConversationStorage, administrator: asyncpg.Connection, lock: str
) -> None:
    begun = await _begin(store, lease=RUN_OUT)
    async with _held_up(administrator, lock, store.cancel_run("u", begun.run.run_id)):
        assert await _free_counters(administrator) == 1


async def test_deleting_a_session_takes_the_counter_after_its_messages(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    await _finish(store, await _begin(store))
    async with _held_up(administrator, "SELECT FROM messages FOR UPDATE", store.delete_session("u", "s")):
        assert await _free_counters(administrator) == 1


_WRITES: dict[str, Callable[[PostgresConversationStorage], Awaitable[object]]] = {
    "append_messages": lambda store: store.append_messages(
        AppendMessages(
            user_id="u", session_id="s", messages=[NewMessage(type=MessageType.HUMAN, content="Hello")], request_id="r"
        )
    ),
    "save_session": lambda store: store.save_session(
        SaveSession(
            user_id="u",
            session_id="s",
            messages=[NewMessage(type=MessageType.HUMAN, content="Hello")],
            metadata={"a": 1},
            request_id="r",
        )
    ),
    "update_session": lambda store: store.update_session(
        UpdateSession(user_id="u", session_id="s", title="a title", request_id="r")
    ),
    "delete_messages": lambda store: store.delete_messages("u", "s", after_position=1, request_id="r"),
    "delete_user_data": lambda store: store.delete_user_data("u"),
}


@pytest.mark.parametrize(
    ("name", "lock"),
    [
        *((name, "SELECT FROM sessions FOR UPDATE") for name in _WRITES),
        ("append_messages", "LOCK TABLE messages IN EXCLUSIVE MODE"),
        ("append_messages", "LOCK TABLE requests IN EXCLUSIVE MODE"),
        ("save_session", "LOCK TABLE messages IN EXCLUSIVE MODE"),
        ("update_session", "LOCK TABLE requests IN EXCLUSIVE MODE"),
        ("delete_messages", "SELECT FROM messages FOR UPDATE"),
        ("delete_user_data", "SELECT FROM messages FOR UPDATE"),
    ],
)
async def test_every_other_write_takes_the_counter_last(
    store: PostgresConversationStorage, administrator: asyncpg.Connection, name: str, lock: str
) -> None:
    await _finish(store, await _begin(store))
    async with _held_up(administrator, lock, _WRITES[name](store)):
        assert await _free_counters(administrator) == 1


async def test_deleting_a_users_data_leaves_a_session_that_comes_meanwhile(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    """And its counter: without one, its user would pass for somebody who has no sessions."""
    await _finish(store, await _begin(store))
    async with _held_up(administrator, "SELECT FROM sessions FOR UPDATE", store.delete_user_data("u")):
        await store.append_messages(
            AppendMessages(
                user_id="u", session_id="new", messages=[NewMessage(type=MessageType.HUMAN, content="Hello")]
            )
        )
    assert (await store.list_session_ids("u", page_size=10, after=None)).session_ids == ("new",)
    assert (await store.user_version("u")).revision > 0
    assert await store.delete_user_data("u") == 1
    assert await administrator.fetchval("SELECT count(*) FROM user_changes") == 0
