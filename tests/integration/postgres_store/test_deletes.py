"""What follows from a deletion that is committed is done whatever becomes of the call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from services.storage.errors import SessionNotFound
from services.storage.store.commands import BeginRun
from services.storage.store.events import NoEventLog
from services.storage.store.postgres import PostgresConversationStorage
from tests.integration.postgres_store.conftest import LIMITS

Delete = Callable[[PostgresConversationStorage], Awaitable[int]]

DELETES: dict[str, Delete] = {
    "a session": lambda store: store.delete_session("u", "s", request_id="d", request_hash=b"1"),
    "all of a user": lambda store: store.delete_user_data("u", request_id="d", request_hash=b"1"),
}
every_delete = pytest.mark.parametrize("delete", DELETES.values(), ids=DELETES)


class _SlowLog(NoEventLog):
    """Forgets nothing before it may."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_forget = asyncio.Event()
        self.forgotten: list[str] = []

    async def forget(self, user_id: str, run_ids: Sequence[str]) -> None:
        self.asked.set()
        await self.may_forget.wait()
        self.forgotten += run_ids


@pytest.fixture
def log() -> _SlowLog:
    return _SlowLog()


@pytest.fixture
async def store(database_url: str, log: _SlowLog) -> AsyncIterator[PostgresConversationStorage]:
    store = await PostgresConversationStorage.open(database_url, limits=LIMITS, events=log)
    try:
        yield store
    finally:
        log.may_forget.set()
        await store.close()


async def _run(store: PostgresConversationStorage) -> str:
    begun = await store.begin_run(BeginRun(user_id="u", session_id="s", message="Hello", lease=timedelta(minutes=1)))
    return begun.run.run_id


@every_delete
async def test_a_call_that_is_cut_short_leaves_no_events_behind(
    store: PostgresConversationStorage, log: _SlowLog, delete: Delete
) -> None:
    """A repeat could not find them any more."""
    run_id = await _run(store)
    call = asyncio.ensure_future(delete(store))
    await log.asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    log.may_forget.set()
    await store.close()
    assert log.forgotten == [run_id]


@every_delete
async def test_a_log_that_is_slow_keeps_no_caller(
    store: PostgresConversationStorage, log: _SlowLog, delete: Delete
) -> None:
    run_id = await _run(store)
    async with asyncio.timeout(5):
        assert await delete(store) == 1
    with pytest.raises(SessionNotFound):
        await store.get_session("u", "s")
    log.may_forget.set()
    await store.close()
    assert log.forgotten == [run_id]
