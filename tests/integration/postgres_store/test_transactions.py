"""Transactions are retried where that helps, and leave nothing behind where it does not."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from services.runtime.errors import TimeLimit
from services.storage.errors import Contention, DatabaseUnavailable, Overloaded
from services.storage.store.postgres.database import Connection, Database, PostgresLimits, Statement
from services.storage.store.postgres.failures import StatementFault
from tests.integration.postgres_store.sleeping import until_sleeping

_INSERT = Statement("INSERT INTO notes VALUES ('kept')")
_COUNT = Statement("SELECT count(*) FROM notes")
_SLEEP = Statement("SELECT pg_sleep(30)")


def _raise(sqlstate: str) -> str:
    return f"DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{sqlstate}'; END $$"


@pytest.fixture(autouse=True)
async def notes(administrator: asyncpg.Connection) -> None:
    await administrator.execute("CREATE TABLE notes (note text)")


class Failing:
    """Inserts a row, then fails as PostgreSQL would, so many times before it succeeds."""

    def __init__(self, sqlstate: str, *, times: int):
        self.attempts = 0
        self._sqlstate = sqlstate
        self._times = times

    async def __call__(self, connection: Connection) -> str:
        self.attempts += 1
        await connection.execute(_INSERT, {})
        if self.attempts <= self._times:
            await connection.execute(Statement(_raise(self._sqlstate)), {})
        return "done"


async def _count(database: Database) -> int:
    [[count]] = await database.rows(_COUNT, {})
    return int(count)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_a_serialization_failure_or_deadlock_is_run_anew(database: Database, sqlstate: str) -> None:
    work = Failing(sqlstate, times=2)
    assert await database.transaction(work) == "done"
    assert (work.attempts, await _count(database)) == (3, 1)


async def test_the_third_failure_in_a_row_is_contention(database: Database) -> None:
    work = Failing("40001", times=3)
    with pytest.raises(Contention):
        await database.transaction(work)
    assert (work.attempts, await _count(database)) == (3, 0)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_a_single_statement_is_run_anew_as_well(
    database: Database, administrator: asyncpg.Connection, sqlstate: str
) -> None:
    await administrator.execute(f"""
        CREATE SEQUENCE attempts;
        CREATE FUNCTION fail_twice() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('attempts') < 3 THEN
                RAISE EXCEPTION 'on purpose' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN 'kept';
        END $$""")
    insert = Statement("INSERT INTO notes SELECT fail_twice() RETURNING note")
    assert [row.note for row in await database.rows(insert, {})] == ["kept"]
    assert await _count(database) == 1
    await administrator.execute("SELECT setval('attempts', 1, false); ALTER SEQUENCE attempts INCREMENT -1 MINVALUE -9")
    with pytest.raises(Contention):
        await database.rows(insert, {})
    assert await _count(database) == 1


async def test_statements_that_deadlock_all_take_effect(database_url: str, administrator: asyncpg.Connection) -> None:
    name = await administrator.fetchval("SELECT current_database()")
    await administrator.execute(f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '10ms'")
    await administrator.execute("""
        INSERT INTO notes VALUES ('a'), ('b');
        CREATE SEQUENCE attempts;
        CREATE FUNCTION append(first text, second text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            PERFORM nextval('attempts');
            UPDATE notes SET note = note WHERE note = first;
            PERFORM pg_sleep(0.1);
            UPDATE notes SET note = note WHERE note = second;
            INSERT INTO notes VALUES ('appended');
        END $$""")
    database = Database(database_url, PostgresLimits())
    append = Statement("SELECT append(:first, :second)")
    orders = [{"first": "a", "second": "b"}, {"first": "b", "second": "a"}]
    await asyncio.gather(*(database.rows(append, order) for order in orders))
    assert await _count(database) == 4
    assert await administrator.fetchval("SELECT last_value FROM attempts") > 2, "none of them was run anew"
    await database.close()


async def test_a_table_that_another_version_changes_meanwhile_fails_no_transaction(
    database: Database, administrator: asyncpg.Connection
) -> None:
    everything = Statement("SELECT * FROM notes")

    async def work(connection: Connection) -> int:
        await connection.execute(_INSERT, {})
        return len(await connection.rows(everything, {}))

    assert await database.transaction(work) == 1
    await administrator.execute("ALTER TABLE notes ADD COLUMN author text")
    assert await database.transaction(work) == 2


@pytest.mark.parametrize("sqlstate", ["57P01", "57P03", "25006", "08006", "53100"])
async def test_a_server_that_cannot_serve_is_unavailable(database: Database, sqlstate: str) -> None:
    work = Failing(sqlstate, times=1)
    with pytest.raises(DatabaseUnavailable):
        await database.transaction(work)
    assert (work.attempts, await _count(database)) == (1, 0)


async def test_a_fault_of_ours_stays_one_and_tells_no_values(database: Database) -> None:
    with pytest.raises(StatementFault) as fault:
        await database.rows(Statement("SELECT CAST(:words AS text) FROM nowhere"), {"words": "a user's words"})
    assert "a user's words" not in str(fault.value)


async def test_a_statement_past_its_limit_is_told_as_such(database: Database) -> None:
    with pytest.raises(TimeLimit) as refusal:
        await database.rows(_SLEEP, {})
    assert refusal.value.metadata["limit_seconds"] == "2"


async def test_waiting_too_long_for_anothers_lock_is_contention(
    database: Database, administrator: asyncpg.Connection
) -> None:
    async with administrator.transaction():
        await administrator.execute("LOCK TABLE notes")
        with pytest.raises(Contention):
            await database.rows(_COUNT, {})


async def test_a_call_that_finds_every_connection_busy_is_told_to_come_again(
    database: Database, administrator: asyncpg.Connection
) -> None:
    busy = [asyncio.create_task(database.rows(_SLEEP, {})) for _ in range(2)]
    await until_sleeping(administrator, 2)
    with pytest.raises(Overloaded) as refusal:
        await database.rows(Statement("SELECT 1"), {})
    assert refusal.value.retry_after_s
    await _cancelled(busy)


async def test_a_cancelled_call_gives_its_connection_back(
    database: Database, administrator: asyncpg.Connection
) -> None:
    async def transaction(connection: Connection) -> None:
        await connection.execute(_INSERT, {})
        await connection.execute(_SLEEP, {})

    for _ in range(3):
        busy = [
            asyncio.create_task(database.rows(_SLEEP, {})),
            asyncio.create_task(database.transaction(transaction)),
        ]
        await until_sleeping(administrator, 2)
        await _cancelled(busy)
        # Both are to be had at once, or one of these would be refused.
        assert list(await asyncio.gather(_count(database), _count(database))) == [0, 0]


async def test_calls_succeed_again_once_the_server_has_dropped_every_connection(
    database: Database, administrator: asyncpg.Connection
) -> None:
    await _drop_connections_of(database, administrator)
    for _ in range(4):
        assert len(await database.rows(Statement("SELECT 1"), {})) == 1


async def test_a_connection_that_has_lain_idle_is_tried_before_it_is_used(
    database_url: str, administrator: asyncpg.Connection
) -> None:
    database = Database(database_url, PostgresLimits(ping_after_idle_s=0))
    await _drop_connections_of(database, administrator)
    assert len(await database.rows(Statement("SELECT 1"), {})) == 1
    await database.close()


async def test_a_server_that_nobody_listens_at_is_unavailable(unused_tcp_port: int) -> None:
    database = Database(f"postgresql://nobody@127.0.0.1:{unused_tcp_port}/none", PostgresLimits())
    with pytest.raises(DatabaseUnavailable):
        await database.rows(Statement("SELECT 1"), {})
    await database.close()


async def _drop_connections_of(database: Database, administrator: asyncpg.Connection) -> None:
    await asyncio.gather(*(database.rows(Statement("SELECT 1"), {}) for _ in range(2)))
    await administrator.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'askback-storage' AND datname = current_database()"
    )


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with pytest.raises(asyncio.CancelledError):
            await task
