"""Behind a pooler in transaction mode, where two transactions may meet two servers."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from services.runtime.errors import TimeLimit
from services.storage.errors import Contention, DatabaseUnavailable
from services.storage.store.commands import BeginRun
from services.storage.store.postgres import PostgresConversationStorage
from services.storage.store.postgres.database import Connection, Database, Statement
from tests.integration.postgres_store.conftest import LIMITS
from tests.integration.postgres_store.pgbouncer import pgbouncer_to
from tests.integration.postgres_store.pooler import pooler_to
from tests.integration.postgres_store.sleeping import until_sleeping

POOLED = replace(LIMITS, pool_size=6, prepared_statements=False)
_BACKEND = Statement("SELECT pg_backend_pid() AS pid")


_SERVERS = 3
_PGBOUNCER = shutil.which("pgbouncer")


@pytest.fixture(params=["a strict pooler", *(["pgbouncer"] if _PGBOUNCER else [])])
async def pooler_url(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> AsyncIterator[str]:
    """Over fewer connections than a store takes."""
    pooler = (
        pgbouncer_to(database_url, binary=_PGBOUNCER, folder=tmp_path, size=_SERVERS)
        if _PGBOUNCER and request.param == "pgbouncer"
        else pooler_to(database_url, size=_SERVERS)
    )
    async with pooler as url:
        yield url


@pytest.fixture
async def pooled(pooler_url: str) -> AsyncIterator[Database]:
    database = Database(pooler_url, POOLED)
    try:
        await asyncio.gather(*(database.rows(Statement("SELECT pg_sleep(0.01)"), {}) for _ in range(6)))
        yield database
    finally:
        await database.close()


async def test_a_transaction_stays_on_one_server_and_the_next_one_need_not(pooled: Database) -> None:
    async def work(connection: Connection) -> set[int]:
        return {await connection.value(_BACKEND, {}) for _ in range(5)}

    met = [await pooled.transaction(work) for _ in range(6)]
    assert all(len(pids) == 1 for pids in met)
    assert len(set.union(*met)) == _SERVERS


async def test_statements_with_values_meet_whichever_server_is_free(pooled: Database) -> None:
    add = Statement("SELECT CAST(:a AS bigint) + CAST(:b AS bigint) AS sum")
    found = await asyncio.gather(*(pooled.rows(add, {"a": n, "b": 1}) for n in range(6)))
    for n in range(40):
        found.append(await pooled.rows(add, {"a": n, "b": 1}))
    assert [row.sum for [row] in found] == [n + 1 for n in (*range(6), *range(40))]


async def test_the_limits_hold_and_stay_with_the_transaction(
    pooler_url: str, pooled: Database, administrator: asyncpg.Connection
) -> None:
    await administrator.execute("CREATE TABLE notes (note text)")
    with pytest.raises(TimeLimit):
        await pooled.rows(Statement("SELECT pg_sleep(30)"), {})
    async with administrator.transaction():
        await administrator.execute("LOCK TABLE notes")
        with pytest.raises(Contention):
            await pooled.rows(Statement("SELECT FROM notes"), {})
    another = await asyncpg.connect(pooler_url, statement_cache_size=0)
    for _ in range(4):
        assert await another.execute("SELECT 1 WHERE current_setting('statement_timeout') = '0'") == "SELECT 1"
    await another.close()


async def test_a_cancelled_call_stops_its_own_statement_alone(
    pooled: Database, administrator: asyncpg.Connection
) -> None:
    spared = asyncio.create_task(pooled.rows(Statement("SELECT pg_sleep(1)"), {}))
    stopped = asyncio.create_task(pooled.rows(Statement("SELECT pg_sleep(30)"), {}))
    await until_sleeping(administrator, 2)
    stopped.cancel()
    await until_sleeping(administrator, 1)
    assert len(await spared) == 1


async def test_replicas_that_start_at_once_behind_a_pooler_serve_one_session(pooler_url: str) -> None:
    stores = await asyncio.gather(*(PostgresConversationStorage.open(pooler_url, limits=POOLED) for _ in range(4)))
    request = BeginRun(
        user_id="u", session_id="s", message="Hello", lease=timedelta(minutes=1), request_id="r", request_hash=b"hash"
    )
    begun = await asyncio.gather(*(store.begin_run(request) for store in stores))
    assert len({one.run.run_id for one in begun}) == 1
    for store in stores:
        await store.check()
        await store.close()


async def test_a_connection_that_states_its_own_settings_is_refused_there(pooler_url: str) -> None:
    """So the setting is needed, and the tests above prove that it does what it is for."""
    database = Database(pooler_url, LIMITS)
    with pytest.raises(DatabaseUnavailable):
        await database.rows(_BACKEND, {})
    await database.close()
