"""What only the store over PostgreSQL has to keep: its tables, and what others read in them."""

import asyncio
import hashlib
from datetime import timedelta

import asyncpg
import pytest

from services.storage.errors import DatabaseUnavailable
from services.storage.models import MessageType, NewMessage, RunStatus
from services.storage.store.commands import BeginRun, FinishRun
from services.storage.store.events import NoEventLog
from services.storage.store.postgres import PostgresConversationStorage
from services.storage.store.postgres.database import Database
from services.storage.store.postgres.end import end_expired
from services.storage.store.results import BegunRun


async def _begin(store: PostgresConversationStorage, *, session_id: str = "s", request_id: str = "") -> BegunRun:
    return await store.begin_run(
        BeginRun(
            user_id="u",
            session_id=session_id,
            message="Hello",
            lease=timedelta(minutes=1),
            request_id=request_id,
            request_hash=hashlib.sha256(request_id.encode()).digest(),
        )
    )


async def _finish(store: PostgresConversationStorage, begun: BegunRun) -> None:
    await store.finish_run(
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


async def test_replicas_that_start_at_once_agree_on_the_tables(database_url: str) -> None:
    stores = await asyncio.gather(*(PostgresConversationStorage.open(database_url) for _ in range(6)))
    begun = await asyncio.gather(*(_begin(store, request_id="r") for store in stores))
    assert len({one.run.run_id for one in begun}) == 1
    for store in stores:
        await store.close()


async def test_starting_again_keeps_what_is_stored(database_url: str) -> None:
    first = await PostgresConversationStorage.open(database_url)
    begun = await _begin(first, request_id="r")
    await first.close()
    second = await PostgresConversationStorage.open(database_url)
    assert (await second.get_run("u", begun.run.run_id)) == begun.run
    assert (await _begin(second, request_id="r")).already_begun
    await second.close()


async def test_tables_live_beside_those_of_others(database_url: str, administrator: asyncpg.Connection) -> None:
    await administrator.execute("CREATE TABLE alembic_version (version_num text); CREATE TABLE documents (name text)")
    store = await PostgresConversationStorage.open(database_url)
    await store.close()
    assert await administrator.fetchval("SELECT count(*) FROM alembic_version") == 0
    assert await administrator.fetchval("SELECT count(*) FROM alembic_version_storage") == 1


async def test_every_key_and_index_of_a_users_rows_begins_with_the_user(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    """So that the tables can be sharded by user without a change; upkeep alone looks for times, and for no key."""
    rows = await administrator.fetch("""
        SELECT a.attname AS first, i.indisunique AS unique
        FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indrelid
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE c.relnamespace = 'public'::regnamespace AND EXISTS (
            SELECT 1 FROM pg_attribute AS u WHERE u.attrelid = c.oid AND u.attname = 'user_id')""")
    assert len(rows) >= 6
    assert {row["first"] for row in rows if row["unique"]} == {"user_id"}
    assert all(row["first"] == "user_id" or row["first"].endswith("_time") for row in rows)


async def test_each_change_of_a_list_moves_one_of_the_users_counters(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    async def counters() -> int:
        return int(await administrator.fetchval("SELECT sum(revision) FROM user_changes WHERE user_id = 'u'"))

    begun = await _begin(store)
    seen = [await counters()]
    await _finish(store, begun)
    seen.append(await counters())
    await store.delete_session("u", "s")
    seen.append(await counters())
    assert [count - seen[0] for count in seen] == [0, 1, 2]


async def test_a_refused_run_moves_no_counter(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    await _begin(store)
    before = await administrator.fetch("SELECT * FROM user_changes")
    with pytest.raises(Exception, match="another run"):
        await _begin(store)
    assert await administrator.fetch("SELECT * FROM user_changes") == before


async def test_what_is_left_of_a_deleted_session_names_nothing_of_it(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    begun = await _begin(store, session_id="the-session", request_id="the-request")
    await store.delete_session("u", "the-session", request_id="the-deletion", request_hash=b"hash")
    tables = await administrator.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    left = "\n".join([str(await administrator.fetch(f'SELECT * FROM "{table["tablename"]}"')) for table in tables])
    for name in ("the-session", "the-request", "the-deletion", begun.run.run_id, begun.session.uid, "Hello"):
        assert name not in left


async def test_ending_expired_runs_passes_over_one_that_was_renewed_meanwhile(
    store: PostgresConversationStorage, database: Database
) -> None:
    begun = await _begin(store)
    await end_expired(database, NoEventLog(), user_id="u", session_id="s")
    assert await store.get_run("u", begun.run.run_id) == begun.run
    assert await store.get_session("u", "s") == begun.session


async def test_a_store_that_answers_is_well(store: PostgresConversationStorage) -> None:
    await store.check()


async def test_a_server_that_takes_no_writes_is_not_well(database_url: str, administrator: asyncpg.Connection) -> None:
    name = await administrator.fetchval("SELECT current_database()")
    writable = await PostgresConversationStorage.open(database_url)
    await writable.close()
    await administrator.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    store = await PostgresConversationStorage.open(database_url)
    with pytest.raises(DatabaseUnavailable):
        await store.check()
    with pytest.raises(DatabaseUnavailable):
        await _begin(store)
    await store.close()


async def test_a_status_that_this_version_does_not_know_costs_its_run_alone(
    store: PostgresConversationStorage, administrator: asyncpg.Connection
) -> None:
    begun = await _begin(store)
    await _finish(store, begun)
    await administrator.execute("UPDATE runs SET status = 77")
    assert (await store.get_run("u", begun.run.run_id)).status is RunStatus.UNKNOWN
    page = await store.list_runs("u", "s", page_size=10, after=None)
    assert [run.status for run in page.runs] == [RunStatus.UNKNOWN]
    assert (await store.cancel_run("u", begun.run.run_id)).status is RunStatus.UNKNOWN
    await _begin(store)
