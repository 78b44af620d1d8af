"""Connections: waited for, tried, cut and closed, and none is lost whatever becomes of its call."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest

from services.storage.errors import DatabaseUnavailable, Overloaded
from services.storage.store.postgres.database import Connection, Database, PostgresLimits, Statement
from services.storage.store.postgres.failures import StatementFault
from tests.integration.postgres_store.conftest import LIMITS
from tests.integration.postgres_store.sleeping import until_sleeping
from tests.integration.postgres_store.wire import AT_REST, Wire, wire_to

_ONE = Statement("SELECT 1")
_SLEEP = Statement("SELECT pg_sleep(30)")


@pytest.fixture
async def wire(database_url: str) -> AsyncIterator[Wire]:
    async with wire_to(database_url) as wire:
        yield wire


@asynccontextmanager
async def _opened(wire: Wire, limits: PostgresLimits = LIMITS) -> AsyncIterator[Database]:
    """With every connection of its pool at rest."""
    database = Database(wire.url, limits)
    try:
        await asyncio.gather(*(database.rows(_ONE, {}) for _ in range(limits.pool_size)))
        yield database
    finally:
        await database.close()


async def _all_places_are_free(database: Database) -> None:
    """Or one of these would be refused."""
    slow = Statement("SELECT pg_sleep(0.01)")
    await asyncio.gather(*(database.rows(slow, {}) for _ in range(LIMITS.pool_size)))


async def _until_waiting(task: asyncio.Task[object]) -> None:
    """Until it has come as far as it can while nothing is carried."""
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not task.done()


async def _cancelled(task: asyncio.Task[object]) -> None:
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 0.1, "it waited for a server that is silent"


async def test_a_call_cancelled_while_it_connects_leaves_its_place(wire: Wire) -> None:
    database = Database(wire.url, LIMITS)
    wire.stall()
    for _ in range(LIMITS.pool_size + 1):
        task: asyncio.Task[object] = asyncio.create_task(database.rows(_ONE, {}))
        await _until_waiting(task)
        await _cancelled(task)
    wire.resume()
    await _all_places_are_free(database)
    await database.close()


async def test_a_call_cancelled_while_a_connection_is_tried_leaves_its_place(wire: Wire) -> None:
    async with _opened(wire, replace(LIMITS, ping_after_idle_s=0)) as database:
        wire.stall()
        for _ in range(LIMITS.pool_size + 1):
            task: asyncio.Task[object] = asyncio.create_task(database.rows(_ONE, {}))
            await _until_waiting(task)
            await _cancelled(task)
        wire.resume()
        await _all_places_are_free(database)


async def test_a_call_cancelled_while_it_waits_for_a_place_leaves_none_behind(
    database: Database, administrator: asyncpg.Connection
) -> None:
    busy = [asyncio.create_task(database.rows(_SLEEP, {})) for _ in range(LIMITS.pool_size)]
    await until_sleeping(administrator, LIMITS.pool_size)
    waiting = [asyncio.create_task(database.rows(_ONE, {})) for _ in range(3)]
    # Each begins to wait as soon as it runs.
    await asyncio.sleep(0)
    for task in [*waiting, *busy]:
        task.cancel()
    await asyncio.gather(*waiting, *busy, return_exceptions=True)
    await _all_places_are_free(database)


@pytest.mark.parametrize("within", ["a statement", "BEGIN", "COMMIT", "ROLLBACK"])
async def test_a_call_cancelled_while_the_server_is_silent_ends_at_once_and_leaves_its_place(
    wire: Wire, within: str
) -> None:
    async def work(connection: Connection) -> None:
        if within == "a statement":
            wire.stall()
        await connection.rows(_ONE, {})
        if within in ("COMMIT", "ROLLBACK"):
            wire.stall()
        if within == "ROLLBACK":
            raise LookupError

    async with _opened(wire) as database:
        if within == "BEGIN":
            wire.stall()
        task: asyncio.Task[object] = asyncio.create_task(database.transaction(work))
        await _until_waiting(task)
        await _cancelled(task)
        wire.resume()
        await _all_places_are_free(database)


async def test_what_was_cancelled_while_the_server_was_silent_has_no_effect(
    wire: Wire, administrator: asyncpg.Connection
) -> None:
    await administrator.execute("CREATE TABLE notes (note text)")

    async def work(connection: Connection) -> None:
        await connection.execute(Statement("INSERT INTO notes VALUES ('lost')"), {})
        wire.stall()
        await connection.rows(_ONE, {})

    async with _opened(wire) as database:
        task: asyncio.Task[object] = asyncio.create_task(database.transaction(work))
        await _until_waiting(task)
        await _cancelled(task)
        wire.resume()
        await _all_places_are_free(database)
    assert await administrator.fetchval("SELECT count(*) FROM notes") == 0


@pytest.mark.parametrize("pinged", [True, False], ids=["idle for long", "idle for a moment"])
async def test_a_silent_server_is_noticed_long_before_the_statements_own_limit(wire: Wire, pinged: bool) -> None:
    limits = replace(
        LIMITS, statement_timeout_s=60, connect_timeout_s=1, silence_s=0.5, ping_after_idle_s=0 if pinged else 60
    )
    async with _opened(wire, limits) as database:
        wire.stall()
        began = time.monotonic()
        calls = [database.rows(_ONE, {}), database.transaction(lambda connection: connection.rows(_ONE, {}))]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, DatabaseUnavailable)
        # A ping's second and a connection's; or until it is looked for, and then the silence.
        assert time.monotonic() - began < 3
        wire.resume()
        await _all_places_are_free(database)


async def test_a_silent_server_is_noticed_after_one_that_spoke_nonsense(
    wire: Wire, administrator: asyncpg.Connection
) -> None:
    async with _opened(wire, replace(LIMITS, statement_timeout_s=60, silence_s=0.5, ping_after_idle_s=60)) as database:
        slow = asyncio.create_task(database.rows(_SLEEP, {}))
        await until_sleeping(administrator, 1)
        # A call that is at work for long has the server asked, on a connection of its own.
        wire.garble(b"askback-storage")
        async with asyncio.timeout(10):
            for _ in range(2):
                await wire.opens()
            wire.stall()
            with pytest.raises(DatabaseUnavailable):
                await slow
        wire.garble(b"")
        wire.resume()


async def test_a_long_statement_of_a_server_that_answers_others_goes_on(wire: Wire) -> None:
    async with _opened(wire, replace(LIMITS, silence_s=0.2)) as database:
        assert len(await database.rows(Statement("SELECT pg_sleep(1.5)"), {})) == 1


async def test_a_call_over_a_connection_that_alone_is_dead_ends_with_its_own_limit(wire: Wire) -> None:
    async with _opened(wire, replace(LIMITS, statement_timeout_s=0.5, ping_after_idle_s=60)) as database:
        wire.strand()
        began = time.monotonic()
        calls = [database.rows(_ONE, {}), database.transaction(lambda connection: connection.rows(_ONE, {}))]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, DatabaseUnavailable)
        assert 0.5 < time.monotonic() - began < 2.5
        await _all_places_are_free(database)


async def test_a_server_that_takes_writes_again_is_used_by_the_next_call(
    database_url: str, administrator: asyncpg.Connection
) -> None:
    """As after a failover that left the connections to the old one open."""
    name = await administrator.fetchval("SELECT current_database()")
    await administrator.execute("CREATE TABLE notes (note text)")
    await administrator.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    database = Database(database_url, replace(LIMITS, pool_size=1))
    insert = Statement("INSERT INTO notes VALUES ('kept')")
    assert not await database.takes_writes()
    with pytest.raises(DatabaseUnavailable):
        await database.transaction(lambda connection: connection.execute(insert, {}))
    await administrator.execute("SET default_transaction_read_only = off")
    await administrator.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert await database.takes_writes()
    await database.transaction(lambda connection: connection.execute(insert, {}))
    await database.close()


async def test_a_connection_that_nobody_needs_any_more_is_closed(
    database_url: str, administrator: asyncpg.Connection
) -> None:
    connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'askback-storage' AND datname = $1"
    name = await administrator.fetchval("SELECT current_database()")
    database = Database(database_url, replace(LIMITS, close_after_idle_s=0.1))
    await _all_places_are_free(database)
    async with asyncio.timeout(10):
        while True:
            if await administrator.fetchval(connected, name) == 0:
                break
            await asyncio.sleep(0.05)
    assert len(await database.rows(_ONE, {})) == 1
    await database.close()


async def test_connections_that_died_unseen_are_each_tried_once_and_replaced(wire: Wire) -> None:
    async with _opened(wire, replace(LIMITS, ping_after_idle_s=0)) as database:
        wire.cut()
        assert len(await database.rows(_ONE, {})) == 1
        await _all_places_are_free(database)


async def test_connections_into_a_hole_cost_a_call_one_trial(wire: Wire) -> None:
    async with _opened(wire, replace(LIMITS, pool_size=8, ping_after_idle_s=0, connect_timeout_s=10)) as database:
        wire.stall()
        call = asyncio.create_task(database.rows(_ONE, {}))
        # A new one is tried as soon as the first of the eight has been found silent.
        async with asyncio.timeout(2):
            await wire.opens()
        wire.resume()
        assert len(await call) == 1


async def test_a_statement_whose_reply_is_lost_is_not_run_again(wire: Wire, administrator: asyncpg.Connection) -> None:
    await administrator.execute("CREATE TABLE notes (note text)")
    async with _opened(wire) as database:
        wire.lose(AT_REST)
        with pytest.raises(DatabaseUnavailable):
            await database.rows(Statement("INSERT INTO notes VALUES ('once') RETURNING note"), {})
        assert not wire.loses
        assert await administrator.fetchval("SELECT count(*) FROM notes") == 1
        assert len(await database.rows(_ONE, {})) == 1


async def test_no_connection_is_handed_out_within_a_transaction(database: Database) -> None:
    transaction = Statement("SELECT pg_current_xact_id()::text AS id")
    await database.rows(Statement("BEGIN"), {})
    met = [row.id for _ in range(4) for row in await database.rows(transaction, {})]
    assert len(set(met)) == 4


async def test_a_failure_that_the_work_overlooks_is_not_told_as_a_commit(
    database: Database, administrator: asyncpg.Connection
) -> None:
    await administrator.execute("CREATE TABLE notes (note text)")

    async def work(connection: Connection) -> str:
        await connection.execute(Statement("INSERT INTO notes VALUES ('lost')"), {})
        try:
            await connection.execute(Statement("SELECT 1 / 0"), {})
        except asyncpg.DivisionByZeroError:
            return "done"
        raise AssertionError("it must fail")

    with pytest.raises(StatementFault):
        await database.transaction(work)
    assert await administrator.fetchval("SELECT count(*) FROM notes") == 0


async def test_closing_ends_calls_under_way_and_refuses_later_ones(
    database: Database, administrator: asyncpg.Connection
) -> None:
    busy = asyncio.create_task(database.rows(_SLEEP, {}))
    free = asyncio.create_task(database.rows(Statement("SELECT pg_sleep(0.3)"), {}))
    await until_sleeping(administrator, 2)
    began = time.monotonic()
    await database.close()
    assert time.monotonic() - began < 1.5
    assert len(await free) == 1
    with pytest.raises(DatabaseUnavailable):
        await busy
    for later in (database.rows(_ONE, {}), database.takes_writes()):
        with pytest.raises(DatabaseUnavailable):
            await later
    await database.close()


async def test_closing_while_the_server_is_silent_takes_a_moment(wire: Wire) -> None:
    async with _opened(wire) as database:
        wire.stall()
        began = time.monotonic()
        await database.close()
        assert time.monotonic() - began < 1.5


async def test_a_place_is_waited_for_as_long_as_it_may_be(database_url: str, administrator: asyncpg.Connection) -> None:
    database = Database(database_url, replace(LIMITS, pool_size=1, pool_wait_s=5))
    calls = [database.rows(Statement("SELECT pg_sleep(0.05)"), {}) for _ in range(5)]
    assert len(await asyncio.gather(*calls)) == 5
    await database.close()
    impatient = Database(database_url, replace(LIMITS, pool_size=1))
    busy = asyncio.create_task(impatient.rows(Statement("SELECT pg_sleep(1)"), {}))
    await until_sleeping(administrator, 1)
    began = time.monotonic()
    with pytest.raises(Overloaded):
        await impatient.rows(_ONE, {})
    assert time.monotonic() - began < 3 * LIMITS.pool_wait_s
    assert len(await busy) == 1
    await impatient.close()
