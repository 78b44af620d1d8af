"""Whatever is done to a session's runs at once leaves it whole, and nobody in a deadlock."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from services.storage.errors import (
    HitlTaskNotFound,
    HitlTaskNotPending,
    HitlTaskPending,
    LeaseLost,
    RunInProgress,
    RunNotFound,
    RunNotRetryable,
    SessionDeleted,
    SessionNotFound,
)
from services.storage.models import (
    ConflictPolicy,
    HitlKind,
    HitlTaskDraft,
    MessageType,
    NewMessage,
    PendingHitlPolicy,
    RunStatus,
)
from services.storage.store.commands import BeginRun, FinishRun
from services.storage.store.postgres import PostgresConversationStorage, PostgresLimits
from services.storage.store.postgres.database import Database
from services.storage.store.postgres.due import drop_lost_places, end_expired_runs, expire_hitl_tasks
from services.storage.store.results import BegunRun
from tests.integration.postgres_store.scripted_log import ScriptedLog

SESSIONS = 3
CLIENTS = 10
STEPS = 25
SEEDS = (1, 2)

# What may be in a call's way; that a database was too busy, or in a deadlock, is none of it.
EXPECTED = (
    HitlTaskNotFound,
    HitlTaskNotPending,
    HitlTaskPending,
    LeaseLost,
    RunInProgress,
    RunNotFound,
    RunNotRetryable,
    SessionDeleted,
    SessionNotFound,
)

_WHOLE = """
    SELECT s.session_id, s.message_count, s.active_run_id,
        (SELECT array_agg(m.position ORDER BY m.position) FROM messages AS m
            WHERE m.user_id = s.user_id AND m.session_id = s.session_id) AS positions,
        (SELECT array_agg(r.run_id) FROM runs AS r
            WHERE r.user_id = s.user_id AND r.session_id = s.session_id AND r.status = 2) AS running,
        (SELECT array_agg(t.task_id) FROM hitl_tasks AS t
            WHERE t.user_id = s.user_id AND t.session_id = s.session_id AND t.state = 1) AS pending,
        (SELECT array_agg(t.task_id) FROM hitl_tasks AS t
            WHERE t.user_id = s.user_id AND t.session_id = s.session_id AND t.state = 2) AS claimed,
        (SELECT r.answered_task_id FROM runs AS r
            WHERE r.user_id = s.user_id AND r.run_id = s.active_run_id) AS answered,
        s.pending_hitl_task_id
    FROM sessions AS s"""

_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@asynccontextmanager
async def _two_processes(database_url: str) -> AsyncIterator[list[PostgresConversationStorage]]:
    limits = PostgresLimits(pool_size=CLIENTS, pool_wait_s=10)
    log = ScriptedLog()
    log.reply = "half a reply"
    stores = [await PostgresConversationStorage.open(database_url, limits=limits, events=log) for _ in range(2)]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


class Client:
    """Does one thing after another to sessions that others do things to as well."""

    def __init__(self, store: PostgresConversationStorage, *, name: str, seed: int):
        self._store = store
        self._name = name
        self._random = random.Random(f"{seed} {name}")
        self._known: list[str] = []
        self.outcomes: Counter[str] = Counter()

    async def live(self) -> None:
        for step in range(STEPS):
            work = self._random.choice([self._turn] * 6 + [self._cancel, self._withdraw, self._list, self._delete])
            try:
                await work(f"s{self._random.randrange(SESSIONS)}", f"{self._name} {step}")
            except EXPECTED as refusal:
                self.outcomes[type(refusal).__name__] += 1
            else:
                self.outcomes[work.__name__] += 1

    async def _turn(self, session_id: str, request_id: str) -> None:
        # A holder that dies has no lease: nobody has to wait for its end.
        dies = self._random.random() < 0.2
        begun = await self._store.begin_run(
            BeginRun(
                user_id="u",
                session_id=session_id,
                message=request_id,
                lease=timedelta(0) if dies else timedelta(minutes=1),
                request_id=request_id,
                conflict_policy=self._random.choice(list(ConflictPolicy)),
                patience=timedelta(seconds=self._random.choice([0, 0.2])),
                pending_hitl_policy=self._random.choice(list(PendingHitlPolicy)),
                retries_run_id=self._random.choice(self._known) if self._known and self._random.random() < 0.2 else "",
                max_context_messages=5,
            )
        )
        self._known.append(begun.run.run_id)
        if begun.is_holder and not dies:
            await self._finish(begun)

    async def _finish(self, begun: BegunRun) -> None:
        status = self._random.choice([RunStatus.COMPLETED, RunStatus.AWAITING_INPUT, RunStatus.FAILED])
        draft = HitlTaskDraft(
            original_question="",
            prompt="Which?",
            options=(),
            kind=HitlKind.CLARIFY,
            answers=(),
            resume_state=b"",
            expire_after=timedelta(seconds=self._random.choice([0, 60])),
        )
        await self._store.finish_run(
            FinishRun(
                user_id="u",
                run_id=begun.run.run_id,
                fencing_token=begun.fencing_token,
                request_hash=b"finish",
                status=status,
                reply=NewMessage(type=MessageType.AI, content="reply"),
                metadata={},
                opened_task=draft if status is RunStatus.AWAITING_INPUT else None,
            )
        )

    async def _cancel(self, session_id: str, request_id: str) -> None:
        page = await self._store.list_runs("u", session_id, page_size=3, after=None)
        for run in page.runs:
            await self._store.cancel_run("u", run.run_id)

    async def _withdraw(self, session_id: str, request_id: str) -> None:
        session = await self._store.get_session("u", session_id)
        await self._store.cancel_hitl_task("u", session.pending_hitl_task_id, request_id=request_id)

    async def _list(self, session_id: str, request_id: str) -> None:
        page = await self._store.list_runs("u", session_id, page_size=100, after=None)
        assert len([run for run in page.runs if run.status is RunStatus.RUNNING]) <= 1

    async def _delete(self, session_id: str, request_id: str) -> None:
        if self._random.random() < 0.3:
            await self._store.delete_session("u", session_id, request_id=request_id)


async def _sweep(database: Database) -> None:
    log = ScriptedLog()
    while True:
        await end_expired_runs(database, log)
        await drop_lost_places(database)
        await expire_hitl_tasks(database)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_session_stays_whole_whatever_is_done_to_it_at_once(
    database_url: str, database: Database, administrator: asyncpg.Connection, seed: int
) -> None:
    async with _two_processes(database_url) as stores:
        clients = [Client(stores[n % 2], name=f"client {n}", seed=seed) for n in range(CLIENTS)]
        sweeping = asyncio.create_task(_sweep(database))
        try:
            await asyncio.gather(*(client.live() for client in clients))
        finally:
            sweeping.cancel()
            ended = await asyncio.gather(sweeping, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError], ended
    outcomes = sum((client.outcomes for client in clients), Counter[str]())
    assert outcomes["_turn"] > CLIENTS, outcomes
    for row in await administrator.fetch(_WHOLE):
        _check(dict(row))
    # They are counted as the connections close.
    await _until_closed(administrator)
    assert (
        await administrator.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    )


async def _until_closed(administrator: asyncpg.Connection) -> None:
    left = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'askback-storage'"""
    async with asyncio.timeout(30):
        while True:
            if await administrator.fetchval(left) <= 1:
                return
            await asyncio.sleep(0.01)


def _check(session: dict[str, Any]) -> None:
    assert (session["positions"] or []) == list(range(1, session["message_count"] + 1)), session
    assert (session["running"] or []) == [run_id for run_id in [session["active_run_id"]] if run_id], session
    assert (session["claimed"] or []) == [task_id for task_id in [session["answered"]] if task_id], session
    assert set(filter(None, [session["pending_hitl_task_id"]])) == set(session["pending"] or []), session
