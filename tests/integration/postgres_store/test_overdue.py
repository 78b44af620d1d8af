"""What is overdue is seen to in batches, which wait for nobody and make nobody wait."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from services.storage.models import (
    ConflictPolicy,
    HitlKind,
    HitlState,
    HitlTask,
    HitlTaskDraft,
    RunStatus,
)
from services.storage.store.commands import BeginRun, FinishRun
from services.storage.store.postgres import PostgresConversationStorage, PostgresLimits
from services.storage.store.postgres.database import Database
from services.storage.store.postgres.due import drop_lost_places, end_expired_runs, expire_hitl_tasks
from services.storage.store.results import BegunRun
from tests.integration.postgres_store.scripted_log import ScriptedLog

MIB = 1024 * 1024
LIVE = timedelta(minutes=1)
RUN_OUT = timedelta(0)
LOCKED = "SELECT FROM sessions FOR UPDATE"


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog()


@pytest.fixture
async def store(database_url: str, log: ScriptedLog) -> AsyncIterator[PostgresConversationStorage]:
    store = await PostgresConversationStorage.open(database_url, limits=PostgresLimits(pool_size=4), events=log)
    try:
        yield store
    finally:
        await store.close()


async def _begin(
    store: PostgresConversationStorage, *, session_id: str = "s", lease: timedelta = LIVE, request_id: str = ""
) -> BegunRun:
    return await store.begin_run(
        BeginRun(
            user_id="u",
            session_id=session_id,
            message="Hello",
            lease=lease,
            request_id=request_id,
            conflict_policy=ConflictPolicy.ENQUEUE if request_id else ConflictPolicy.REJECT,
            patience=timedelta(0),
        )
    )


async def _ask_back(store: PostgresConversationStorage, *, session_id: str, expire_after: timedelta) -> HitlTask:
    begun = await _begin(store, session_id=session_id)
    draft = HitlTaskDraft(
        original_question="How long?",
        prompt="Of what?",
        options=(),
        kind=HitlKind.CLARIFY,
        answers=(),
        resume_state=b"",
        expire_after=expire_after,
    )
    finished = await store.finish_run(
        FinishRun(
            user_id="u",
            run_id=begun.run.run_id,
            fencing_token=begun.fencing_token,
            request_hash=b"finish",
            status=RunStatus.AWAITING_INPUT,
            metadata={},
            opened_task=draft,
        )
    )
    assert finished.opened_task is not None
    return finished.opened_task


async def _messages(store: PostgresConversationStorage, session_id: str = "s") -> list[str]:
    loaded = await store.load_session("u", session_id, max_messages=0, include_traces=False, max_bytes=8 * MIB)
    return [message.content for message in loaded.messages]


async def test_runs_whose_lease_ran_out_are_ended_with_their_reply(
    store: PostgresConversationStorage, database: Database, log: ScriptedLog
) -> None:
    log.reply = "half a reply"
    lost = [await _begin(store, session_id=f"{n}", lease=RUN_OUT) for n in range(3)]
    live = await _begin(store, session_id="live")
    assert await end_expired_runs(database, log) == 3
    assert await end_expired_runs(database, log) == 0
    for begun in lost:
        run = await store.get_run("u", begun.run.run_id)
        assert run.status is RunStatus.FAILED
        assert run.error is not None and run.error.reason == "HOLDER_LOST"
        assert await _messages(store, run.session_id) == ["Hello", "half a reply"]
        assert (await store.get_session("u", run.session_id)).active_run_id == ""
    assert await store.get_run("u", live.run.run_id) == live.run
    assert sorted(log.ended) == sorted(begun.run.run_id for begun in lost)


async def test_many_sweepers_at_once_end_a_run_once(
    store: PostgresConversationStorage, database: Database, log: ScriptedLog
) -> None:
    log.reply = "half a reply"
    for n in range(10):
        await _begin(store, session_id=f"{n}", lease=RUN_OUT)
    ended = await asyncio.gather(*(end_expired_runs(database, log) for _ in range(2)))
    assert sum(ended) + await end_expired_runs(database, log) == 10
    assert len(log.ended) == 10
    assert [await _messages(store, f"{n}") for n in range(10)] == [["Hello", "half a reply"]] * 10


async def test_a_sweep_passes_over_a_session_that_another_holds(
    store: PostgresConversationStorage, database: Database, log: ScriptedLog, administrator: asyncpg.Connection
) -> None:
    lost = await _begin(store, lease=RUN_OUT)
    async with administrator.transaction(), asyncio.timeout(5):
        await administrator.execute(LOCKED)
        assert await end_expired_runs(database, log) == 0
    assert log.ended == []
    assert await end_expired_runs(database, log) == 1
    assert log.ended == [lost.run.run_id]


async def test_a_sweep_passes_over_what_cannot_be_ended(
    store: PostgresConversationStorage, database: Database, log: ScriptedLog, administrator: asyncpg.Connection
) -> None:
    """However many of them come first."""
    log.reply = "half a reply"
    for n in range(120):
        await _begin(store, session_id=f"broken {n}", lease=RUN_OUT)
    # The place of the reply is taken.
    await administrator.execute("""
        INSERT INTO messages (user_id, session_id, position, message_id, type, status, content, create_time, run_id)
        SELECT user_id, session_id, 2, 'stray', type, status, content, create_time, run_id FROM messages""")
    lost = [await _begin(store, session_id=f"{n}", lease=RUN_OUT) for n in range(3)]
    assert await end_expired_runs(database, log) == 3
    for begun in lost:
        assert (await store.get_run("u", begun.run.run_id)).status is RunStatus.FAILED
    assert await end_expired_runs(database, log) == 0
    await administrator.execute("DELETE FROM messages WHERE message_id = 'stray'")
    assert await end_expired_runs(database, log) + await end_expired_runs(database, log) == 120


async def test_a_sweep_waits_a_while_for_a_log_that_is_away(
    store: PostgresConversationStorage, database: Database, log: ScriptedLog, administrator: asyncpg.Connection
) -> None:
    log.reply, log.is_away = "half a reply", True
    await _begin(store, session_id="long ago", lease=RUN_OUT)
    await administrator.execute("UPDATE runs SET lease_expire_time = now() - interval '15 seconds'")
    await _begin(store, session_id="just now", lease=RUN_OUT)
    assert await end_expired_runs(database, log) == 1
    assert await _messages(store, "long ago") == ["Hello"]
    log.is_away = False
    assert await end_expired_runs(database, log) == 1
    assert await _messages(store, "just now") == ["Hello", "half a reply"]


async def test_nobody_else_waits_for_a_log_that_is_away(store: PostgresConversationStorage, log: ScriptedLog) -> None:
    log.reply, log.is_away = "half a reply", True
    begun = await _begin(store, lease=RUN_OUT)
    assert (await store.cancel_run("u", begun.run.run_id)).status is RunStatus.CANCELLED
    await _begin(store, lease=RUN_OUT)
    await _begin(store)
    assert await _messages(store) == ["Hello"] * 3


@pytest.mark.parametrize("reply", ["x" * (MIB + 1), "\N{GRINNING FACE}" * (MIB // 4 + 1), "x" + "é" * (MIB // 2)])
async def test_a_reply_is_kept_as_far_as_a_message_holds_it(
    store: PostgresConversationStorage, log: ScriptedLog, reply: str
) -> None:
    log.reply = reply
    await _begin(store, lease=RUN_OUT)
    await _begin(store)
    kept = (await _messages(store))[1]
    assert reply.startswith(kept)
    assert MIB - 4 < len(kept.encode()) <= MIB


async def test_lost_places_are_dropped(
    store: PostgresConversationStorage, database: Database, administrator: asyncpg.Connection
) -> None:
    await _begin(store)
    lost = [await _begin(store, request_id=f"lost {n}") for n in range(3)]
    await administrator.execute("UPDATE runs SET queue_asked_time = now() - interval '15 seconds' WHERE status = 1")
    kept = await _begin(store, request_id="kept")
    assert {begun.run.status for begun in lost} == {RunStatus.QUEUED}
    # It was the first to come after them, and has removed them itself.
    assert await drop_lost_places(database) == 0
    await administrator.execute("UPDATE runs SET queue_asked_time = now() - interval '15 seconds' WHERE status = 1")
    other = await _begin(store, session_id="other")
    async with administrator.transaction(), asyncio.timeout(5):
        await administrator.execute("SELECT FROM runs WHERE status = 1 FOR UPDATE")
        assert await drop_lost_places(database) == 0
    assert await drop_lost_places(database) == 1
    left = await administrator.fetch("SELECT run_id FROM runs")
    assert kept.run.run_id not in {row["run_id"] for row in left}
    assert other.run.run_id in {row["run_id"] for row in left}


async def test_that_questions_have_expired_is_written_down(
    store: PostgresConversationStorage, database: Database, administrator: asyncpg.Connection
) -> None:
    expired = await _ask_back(store, session_id="expired", expire_after=RUN_OUT)
    waiting = await _ask_back(store, session_id="waiting", expire_after=LIVE)
    session, task = await store.get_session("u", "expired"), await store.get_hitl_task("u", expired.task_id)
    async with administrator.transaction(), asyncio.timeout(5):
        await administrator.execute(LOCKED)
        assert await expire_hitl_tasks(database) == 0
    assert await expire_hitl_tasks(database) == 1
    assert await expire_hitl_tasks(database) == 0
    stored = await administrator.fetchrow("SELECT state, resolve_time FROM hitl_tasks WHERE task_id = $1", task.task_id)
    assert tuple(stored) == (HitlState.EXPIRED, task.expire_time)
    # It was so before, wherever it was seen.
    assert await store.get_hitl_task("u", expired.task_id) == task
    assert await store.get_session("u", "expired") == session
    assert (await store.get_hitl_task("u", waiting.task_id)).state is HitlState.PENDING
    assert (await store.get_session("u", "waiting")).pending_hitl_task_id == waiting.task_id
