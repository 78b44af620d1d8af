"""What is past its time is deleted in batches, by any number of replicas, and nothing else is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from services.storage.errors import SessionDeleted, SessionNotFound
from services.storage.models import ConflictPolicy, MessageType, NewMessage, RunStatus
from services.storage.store.commands import AppendMessages, BeginRun, FinishRun
from services.storage.store.events import NoEventLog
from services.storage.store.postgres import PostgresConversationStorage, PostgresUpkeep
from services.storage.store.postgres.database import Database
from services.storage.store.postgres.retention import OldRuns
from tests.integration.postgres_store.conftest import LIMITS

DAY = timedelta(days=1)


class Forgotten(NoEventLog):
    """Remembers whose events were forgotten."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []

    async def forget(self, user_id: str, run_ids: Sequence[str]) -> None:
        self.runs += [(user_id, run_id) for run_id in run_ids]


@asynccontextmanager
async def _upkeep(
    url: str, *, session_ttl: timedelta | None = None, events: Forgotten | None = None
) -> AsyncIterator[PostgresUpkeep]:
    limits = replace(LIMITS, session_ttl=session_ttl)
    upkeep = PostgresUpkeep(url, limits=limits, events=events or Forgotten(), run_ttl=30 * DAY)
    try:
        yield upkeep
    finally:
        await upkeep.close()


@pytest.fixture
async def upkeep(store: PostgresConversationStorage, database_url: str) -> AsyncIterator[PostgresUpkeep]:
    async with _upkeep(database_url) as upkeep:
        yield upkeep


async def _append(
    store: PostgresConversationStorage, session_id: str, *, user_id: str = "u", count: int = 2, request_id: str = ""
) -> None:
    for start in range(0, count, 1_000):
        messages = [NewMessage(type=MessageType.HUMAN, content="words")] * min(1_000, count - start)
        await store.append_messages(
            AppendMessages(user_id=user_id, session_id=session_id, messages=messages, request_id=request_id)
        )


async def _turn(store: PostgresConversationStorage, session_id: str, *, user_id: str = "u") -> str:
    begun = await store.begin_run(
        BeginRun(user_id=user_id, session_id=session_id, message="words", lease=timedelta(minutes=1))
    )
    run_id = begun.run.run_id
    await store.finish_run(
        FinishRun(
            user_id=user_id,
            run_id=run_id,
            fencing_token=begun.fencing_token,
            request_hash=b"h",
            status=RunStatus.COMPLETED,
            metadata={},
        )
    )
    return run_id


async def _expire(administrator: asyncpg.Connection, *session_ids: str) -> None:
    await administrator.execute("UPDATE sessions SET expire_time = now() WHERE session_id = ANY($1)", list(session_ids))


async def _all(batch: Callable[[], object]) -> list[int]:
    done: list[int] = []
    while not done or done[-1]:
        done.append(await batch())  # type: ignore[misc]
    return done


async def _ids(store: PostgresConversationStorage, user_id: str = "u") -> list[str]:
    page = await store.list_session_ids(user_id, page_size=1_000, after=None)
    return sorted(page.session_ids)


async def test_sessions_past_their_time_go_with_all_that_is_theirs_and_others_stay(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    for session_id in ("past", "to come", "kept for good"):
        await _append(store, session_id)
        await _turn(store, session_id)
    await _expire(administrator, "past")
    await administrator.execute("UPDATE sessions SET expire_time = now() + interval '1 h' WHERE session_id = 'to come'")
    before = (await store.user_version("u")).revision
    assert await _all(upkeep.delete_expired_sessions) == [1, 0]
    assert await _ids(store) == ["kept for good", "to come"]
    assert (await store.user_version("u")).revision != before
    for table in ("messages", "runs"):
        left = await administrator.fetch(f"SELECT DISTINCT session_id FROM {table} ORDER BY 1")
        assert [row["session_id"] for row in left] == ["kept for good", "to come"]


async def test_a_session_without_a_time_of_its_own_goes_by_its_last_change(
    store: PostgresConversationStorage, database_url: str, administrator: asyncpg.Connection
) -> None:
    for session_id in ("old", "new", "old, with a time of its own"):
        await _append(store, session_id)
    await administrator.execute(
        "UPDATE sessions SET update_time = now() - interval '8 days' WHERE session_id LIKE 'old%'"
    )
    await administrator.execute(
        "UPDATE sessions SET expire_time = now() + interval '1 h' WHERE session_id LIKE '%its own'"
    )
    async with _upkeep(database_url) as without:
        assert await _all(without.delete_expired_sessions) == [0]
    async with _upkeep(database_url, session_ttl=7 * DAY) as upkeep:
        assert await _all(upkeep.delete_expired_sessions) == [1, 0]
    assert await _ids(store) == ["new", "old, with a time of its own"]


@pytest.mark.parametrize("prepared_statements", [True, False])
async def test_a_session_shows_when_it_will_be_deleted(
    store: PostgresConversationStorage,
    database_url: str,
    administrator: asyncpg.Connection,
    prepared_statements: bool,
) -> None:
    limits = replace(LIMITS, session_ttl=7 * DAY, prepared_statements=prepared_statements)
    with_ttl = await PostgresConversationStorage.open(database_url, limits=limits)
    try:
        await _append(with_ttl, "s")
        shown = await with_ttl.get_session("u", "s")
        assert shown.expire_time == shown.update_time + 7 * DAY
        [listed] = (
            await with_ttl.list_sessions("u", page_size=10, after=None, full=True, max_bytes=1_000_000)
        ).sessions
        assert listed == shown
        assert (await store.get_session("u", "s")).expire_time is None
        own = await administrator.fetchval(
            "UPDATE sessions SET expire_time = now() + interval '1 h' RETURNING expire_time"
        )
        assert (await with_ttl.get_session("u", "s")).expire_time == own
    finally:
        await with_ttl.close()


async def test_a_session_that_a_run_holds_or_waits_for_stays(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    request = BeginRun(user_id="u", session_id="held", message="words", lease=timedelta(minutes=1))
    await store.begin_run(request)
    queued = replace(
        request, conflict_policy=ConflictPolicy.ENQUEUE, patience=timedelta(), request_id="r", request_hash=b"h"
    )
    await store.begin_run(queued)
    await _expire(administrator, "held")
    assert await upkeep.delete_expired_sessions() == 0
    # Between two runs, as seen from here.
    await administrator.execute("UPDATE sessions SET active_run_id = ''")
    assert await upkeep.delete_expired_sessions() == 0
    await administrator.execute("DELETE FROM runs WHERE status = 1")
    assert await upkeep.delete_expired_sessions() == 1


async def test_a_batch_is_of_a_thousand_rows_and_a_session_goes_whole(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    sizes = {"a": 600, "b": 600, "c": 300, "large": 2_500}
    for session_id, count in sizes.items():
        await _append(store, session_id, count=count)
    await _expire(administrator, *sizes)
    assert await _all(upkeep.delete_expired_sessions) == [2, 1, 1, 0]
    assert await _ids(store) == []
    assert await administrator.fetchval("SELECT count(*) FROM messages") == 0


async def test_a_session_that_another_holds_is_passed_over(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    for session_id in ("locked", "free"):
        await _append(store, session_id)
    await _expire(administrator, "locked", "free")
    async with administrator.transaction():
        await administrator.execute("SELECT FROM sessions WHERE session_id = 'locked' FOR UPDATE")
        assert await _all(upkeep.delete_expired_sessions) == [1, 0]
    assert await _all(upkeep.delete_expired_sessions) == [1, 0]


async def test_replicas_at_once_delete_each_session_once_while_others_are_written(
    store: PostgresConversationStorage, database_url: str, administrator: asyncpg.Connection
) -> None:
    for n in range(60):
        await _append(store, f"past {n:02}", user_id=f"u{n % 3}", count=40)
    await administrator.execute("UPDATE sessions SET expire_time = now()")

    async def write() -> None:
        for n in range(30):
            await _append(store, "live", user_id=f"u{n % 3}")

    async with _upkeep(database_url) as one, _upkeep(database_url) as other:
        first, second, _ = await asyncio.gather(
            _all(one.delete_expired_sessions), _all(other.delete_expired_sessions), write()
        )
        rest = await _all(one.delete_expired_sessions)
    assert sum([*first, *second, *rest]) == 60
    for user_id in ("u0", "u1", "u2"):
        assert await _ids(store, user_id) == ["live"]
        assert (await store.get_session(user_id, "live")).message_count == 20


async def test_the_records_of_a_deleted_session_keep_a_repeat_from_bringing_it_back(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    await _append(store, "s", request_id="r")
    await _expire(administrator, "s")
    await upkeep.delete_expired_sessions()
    with pytest.raises(SessionDeleted):
        await _append(store, "s", request_id="r")
    with pytest.raises(SessionNotFound):
        await store.get_session("u", "s")
    assert await administrator.fetchval("SELECT count(*) FROM requests WHERE session_id IS NOT NULL") == 0


async def test_the_events_of_a_deleted_sessions_runs_are_forgotten(
    store: PostgresConversationStorage, database_url: str, administrator: asyncpg.Connection
) -> None:
    gone = [("u", await _turn(store, "past")), ("v", await _turn(store, "past", user_id="v"))]
    await _turn(store, "kept")
    await _expire(administrator, "past")
    events = Forgotten()
    async with _upkeep(database_url, events=events) as upkeep:
        await upkeep.delete_expired_sessions()
    assert sorted(events.runs) == sorted(gone)


class SlowlyForgotten(Forgotten):
    """Takes longer for the runs of one transaction than a batch may take."""

    async def forget(self, user_id: str, run_ids: Sequence[str]) -> None:
        await asyncio.sleep(0.6)


async def test_a_batch_ends_early_where_it_takes_long(
    store: PostgresConversationStorage, database_url: str, administrator: asyncpg.Connection
) -> None:
    for user_id in ("u", "v", "w"):
        await _append(store, "past", user_id=user_id)
    await _expire(administrator, "past")
    async with _upkeep(database_url, events=SlowlyForgotten()) as upkeep:
        assert await _all(upkeep.delete_expired_sessions) == [1, 1, 1, 0]


async def test_old_runs_go_but_for_each_sessions_last(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    old = [await _turn(store, "old") for _ in range(3)]
    await administrator.execute("UPDATE runs SET finish_time = finish_time - interval '31 days'")
    young = [await _turn(store, "young") for _ in range(2)]
    under_way = await store.begin_run(
        BeginRun(user_id="u", session_id="under way", message="words", lease=timedelta(minutes=1))
    )
    assert sum(await _all(upkeep.delete_old_runs)) == 2
    left = {row["run_id"] for row in await administrator.fetch("SELECT run_id FROM runs")}
    assert left == {old[-1], *young, under_way.run.run_id}


async def test_runs_that_grow_old_later_go_too(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    for _ in range(2):
        await _turn(store, "first")
    await administrator.execute("UPDATE runs SET finish_time = finish_time - interval '40 days'")
    assert sum(await _all(upkeep.delete_old_runs)) == 1
    for _ in range(2):
        await _turn(store, "second")
    await administrator.execute(
        "UPDATE runs SET finish_time = finish_time - interval '35 days' WHERE session_id = 'second'"
    )
    assert sum(await _all(upkeep.delete_old_runs)) == 1


async def test_old_runs_behind_many_that_stay_are_found(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    await _turn(store, "s")
    await administrator.execute("""
        INSERT INTO sessions (user_id, session_id, uid, create_time, update_time)
        SELECT 'u', 'only ' || n, n, now(), now() FROM generate_series(1, 1500) AS n;
        INSERT INTO runs (user_id, run_id, session_id, request_id, holder_id, status, fencing_token, lease,
            lease_expire_time, human_position, human_message_id, create_time, finish_time)
        SELECT user_id, 'run of ' || session_id, session_id, '', '', 3, 1, '1 min', now(), 1, 'm', now(),
            now() - interval '50 days'
        FROM sessions WHERE session_id LIKE 'only%';
        UPDATE runs SET finish_time = now() - interval '40 days' WHERE session_id = 's';""")
    last = await _turn(store, "s")
    assert sum(await _all(upkeep.delete_old_runs)) == 1
    assert (await store.get_run("u", last)).run_id == last


async def test_the_walk_through_old_runs_comes_to_its_end_however_long_it_takes(
    store: PostgresConversationStorage, database: Database, administrator: asyncpg.Connection
) -> None:
    """More sessions have one left than are looked at before it is time to start anew."""
    await _turn(store, "s")
    await administrator.execute("""
        INSERT INTO sessions (user_id, session_id, uid, create_time, update_time)
        SELECT 'u', 'only ' || n, n, now(), now() FROM generate_series(1, 10500) AS n;
        INSERT INTO runs (user_id, run_id, session_id, request_id, holder_id, status, fencing_token, lease,
            lease_expire_time, human_position, human_message_id, create_time, finish_time)
        SELECT user_id, 'run of ' || session_id, session_id, '', '', 3, 1, '1 min', now(), 1, 'm', now(),
            now() - interval '50 days'
        FROM sessions WHERE session_id LIKE 'only%';
        UPDATE runs SET finish_time = now() - interval '40 days' WHERE session_id = 's';
        ANALYZE runs""")
    await _turn(store, "s")
    walk = OldRuns(database, ttl=30 * DAY, again_after=timedelta())
    assert [await walk.delete_batch() for _ in range(2)] == [0, 1]


async def test_runs_that_were_their_sessions_last_go_once_the_walk_starts_anew(
    store: PostgresConversationStorage, database: Database, administrator: asyncpg.Connection
) -> None:
    old = await _turn(store, "s")
    await administrator.execute("UPDATE runs SET finish_time = now() - interval '31 days'")
    walk = OldRuns(database, ttl=30 * DAY, again_after=timedelta())
    assert await walk.delete_batch() == 0
    young = await _turn(store, "s")
    assert await walk.delete_batch() == 1
    left = [row["run_id"] for row in await administrator.fetch("SELECT run_id FROM runs")]
    assert young in left and old not in left


async def test_what_is_due_waits_for_no_deletion(
    store: PostgresConversationStorage, database_url: str, administrator: asyncpg.Connection
) -> None:
    """A large session holds up its deletion alone."""
    await _append(store, "large")
    await _expire(administrator, "large")
    begun = await store.begin_run(BeginRun(user_id="u", session_id="dead", message="words", lease=timedelta(minutes=1)))
    await administrator.execute("UPDATE runs SET lease_expire_time = now() - interval '1 h'")
    async with _upkeep(database_url) as upkeep, administrator.transaction():
        # Its messages are held, so that the transaction of its deletion lasts.
        await administrator.execute("SELECT FROM messages WHERE session_id = 'large' FOR UPDATE")
        deleting = asyncio.create_task(upkeep.delete_expired_sessions())
        async with asyncio.timeout(10):
            while not await administrator.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await administrator.execute("SELECT pg_sleep(0.01)")
        assert await upkeep.end_expired_runs() == 1
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
    assert (await store.get_run("u", begun.run.run_id)).status is RunStatus.FAILED


async def test_records_of_requests_go_after_a_day(
    store: PostgresConversationStorage, upkeep: PostgresUpkeep, administrator: asyncpg.Connection
) -> None:
    await _append(store, "s", request_id="old")
    await administrator.execute("UPDATE requests SET create_time = create_time - interval '25 hours'")
    await administrator.execute("""
        INSERT INTO requests (user_id, request_key, request_hash, create_time)
        SELECT 'v', CAST(CAST(n AS text) AS bytea), '', now() - interval '2 days' FROM generate_series(1, 1200) AS n""")
    await _append(store, "s", request_id="young")
    assert await _all(upkeep.forget_requests) == [1_000, 201, 0]
    assert await administrator.fetchval("SELECT count(*) FROM requests") == 1
    await _append(store, "s", request_id="young")
    assert (await store.get_session("u", "s")).message_count == 4
