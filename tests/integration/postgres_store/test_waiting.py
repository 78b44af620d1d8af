"""Whoever waits for a session leaves the database to the others, and is told no less than was seen."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from services.storage.errors import LeaseLost
from services.storage.models import ConflictPolicy, RunEvent, RunStatus
from services.storage.store.commands import BeginRun
from services.storage.store.events import RedisEventLog
from services.storage.store.postgres import PostgresConversationStorage, PostgresLimits
from services.storage.store.redis_connection import RedisConnection
from services.storage.store.results import BegunRun

MIB = 1024 * 1024
LIVE = timedelta(minutes=1)
CROWD = 200

_WAITING_FOR_A_LOCK = """
    SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"""
_RUNS = "SELECT count(*) FROM runs"


@pytest.fixture
async def store(database_url: str, valkey_url: str) -> AsyncIterator[PostgresConversationStorage]:
    redis = RedisConnection.open(valkey_url)
    log = RedisEventLog(redis, ttl=timedelta(hours=1), budget_s=5)
    store = await PostgresConversationStorage.open(
        database_url, limits=PostgresLimits(pool_size=4, lock_timeout_s=30), events=log
    )
    try:
        yield store
    finally:
        await store.close()
        await redis.close()


async def _begin(
    store: PostgresConversationStorage,
    message: str,
    *,
    policy: ConflictPolicy = ConflictPolicy.REJECT,
    patience: timedelta = timedelta(0),
) -> BegunRun:
    return await store.begin_run(
        BeginRun(
            user_id="u",
            session_id="s",
            message=message,
            lease=LIVE,
            request_id=message if policy is ConflictPolicy.ENQUEUE else "",
            conflict_policy=policy,
            patience=patience,
        )
    )


async def _until(administrator: asyncpg.Connection, counted: str, *, count: int) -> None:
    async with asyncio.timeout(30):
        while True:
            if await administrator.fetchval(counted) == count:
                return
            await asyncio.sleep(0.01)


async def test_a_crowd_that_waits_for_one_session_leaves_connections_for_the_others(
    store: PostgresConversationStorage,
) -> None:
    await _begin(store, "first")
    crowd = [
        asyncio.create_task(_begin(store, f"{n}", policy=ConflictPolicy.ENQUEUE, patience=timedelta(seconds=2)))
        for n in range(CROWD)
    ]
    while not all(task.done() for task in crowd):
        assert (await store.list_sessions("other", page_size=1, after=None, full=False, max_bytes=MIB)).sessions == ()
        await asyncio.sleep(0.01)
    begun = await asyncio.gather(*crowd)
    assert {each.run.status for each in begun} == {RunStatus.QUEUED}
    assert sorted(each.queued_ahead for each in begun) == list(range(1, CROWD + 1))


@pytest.mark.parametrize("policy", [ConflictPolicy.INTERRUPT, ConflictPolicy.ROLLBACK])
async def test_a_crowd_that_interrupts_leaves_connections_for_the_others(
    store: PostgresConversationStorage, administrator: asyncpg.Connection, policy: ConflictPolicy
) -> None:
    await _begin(store, "first")
    crowd = [asyncio.create_task(_begin(store, f"{n}", policy=policy)) for n in range(CROWD)]
    waiting = asyncio.create_task(_until(administrator, _RUNS, count=CROWD + 1))
    while not waiting.done():
        assert (await store.list_sessions("other", page_size=1, after=None, full=False, max_bytes=MIB)).sessions == ()
        await asyncio.sleep(0.01)
    await waiting
    assert not [task for task in crowd if task.done() and task.exception()]
    for task in crowd:
        task.cancel()
    await asyncio.wait(crowd)


async def test_what_a_run_tells_until_its_end_is_stored_with_it(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    """Its holder is not dead, though its lease has run out: it goes on while the end waits for the session."""
    old = await _begin(store, "first")

    async def tell(sequence: int, piece: str) -> None:
        event = RunEvent(sequence=sequence, payload=b"event", reply_text=piece)
        await store.append_run_events("u", old.run.run_id, fencing_token=old.fencing_token, events=[event])

    await tell(1, "half ")
    await administrator.execute("UPDATE runs SET lease_expire_time = now()")
    async with administrator.transaction():
        await administrator.execute("SELECT FROM sessions FOR UPDATE")
        # Whoever comes waits for its end.
        cancelling = asyncio.create_task(store.cancel_run("u", old.run.run_id))
        await _until(administrator, _WAITING_FOR_A_LOCK, count=1)
        await tell(2, "a reply")
    assert (await cancelling).status is RunStatus.CANCELLED
    with pytest.raises(LeaseLost):
        await tell(3, ", and more")
    loaded = await store.load_session("u", "s", max_messages=0, include_traces=False, max_bytes=MIB)
    assert [message.content for message in loaded.messages] == ["first", "half a reply"]


async def test_one_that_waits_is_cancelled_though_its_request_was_used_again(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    """Elsewhere, at the very moment when it took its place: each could not see the other yet."""
    await _begin(store, "first")
    queued = await _begin(store, "second", policy=ConflictPolicy.ENQUEUE)
    await administrator.execute("""
        INSERT INTO requests (user_id, request_key, request_hash, create_time)
        SELECT user_id, request_key, 'another body', now() FROM runs WHERE request_key IS NOT NULL""")
    assert (await store.cancel_run("u", queued.run.run_id)).status is RunStatus.CANCELLED
    assert (await store.get_run("u", queued.run.run_id)).status is RunStatus.CANCELLED
