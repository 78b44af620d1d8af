"""What PostgreSQL itself holds in the end, beside what the service says of it."""

from datetime import datetime
from typing import Any

import asyncpg

from services.storage.models import HitlState, RunStatus
from tests.history.record import Entry, Failure, History, Sight, now
from tests.history.servers import connected

_SESSIONS = "SELECT user_id, session_id, uid, revision, message_count, active_run_id FROM sessions"
_MESSAGES = """
    SELECT position, message_id, content, create_time FROM messages
    WHERE user_id = $1 AND session_id = $2 ORDER BY position"""
_ORPHANS = """
    SELECT count(*) FROM {table} AS t
    WHERE NOT EXISTS (SELECT FROM sessions AS s WHERE s.user_id = t.user_id AND s.session_id = t.session_id)"""
_LEFT_RUNNING = f"""
    SELECT count(*) FROM runs AS r JOIN sessions AS s USING (user_id, session_id)
    WHERE r.status = {RunStatus.RUNNING:d} AND s.active_run_id <> r.run_id"""
_HELD_BY_THE_ENDED = f"""
    SELECT count(*) FROM sessions AS s WHERE s.active_run_id <> '' AND NOT EXISTS (
        SELECT FROM runs AS r
        WHERE r.user_id = s.user_id AND r.run_id = s.active_run_id AND r.status = {RunStatus.RUNNING:d})"""
_LEFT_CLAIMED = f"""
    SELECT count(*) FROM hitl_tasks AS t WHERE t.state = {HitlState.CLAIMED:d} AND NOT EXISTS (
        SELECT FROM runs AS r
        WHERE r.user_id = t.user_id AND r.answered_task_id = t.task_id AND r.status = {RunStatus.RUNNING:d})"""
_PENDING_BESIDE_THE_SESSION = f"""
    SELECT count(*) FROM hitl_tasks AS t JOIN sessions AS s USING (user_id, session_id)
    WHERE t.state = {HitlState.PENDING:d} AND t.expire_time > statement_timestamp()
        AND s.pending_hitl_task_id <> t.task_id"""


async def look_into(url: str, history: History) -> None:
    """Adds what the tables hold to the history, and what they may not hold as failures."""
    async with connected(url) as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        began = now()
        for row in await connection.fetch(_SESSIONS):
            rows = await connection.fetch(_MESSAGES, row["user_id"], row["session_id"])
            history.sights.append(_sight(row, tuple(_entry(each) for each in rows), began=began))
        for table in ("messages", "runs", "hitl_tasks"):
            await _expect_none(connection, history, _ORPHANS.format(table=table), f"{table} without their session")
        await _expect_none(connection, history, _LEFT_RUNNING, "runs that run, and hold no session")
        await _expect_none(connection, history, _HELD_BY_THE_ENDED, "sessions held by a run that does not run")
        await _expect_none(connection, history, _LEFT_CLAIMED, "questions claimed by a run that does not run")
        await _expect_none(connection, history, _PENDING_BESIDE_THE_SESSION, "questions that wait out of sight")


async def _expect_none(connection: asyncpg.Connection, history: History, query: str, what: str) -> None:
    count = await connection.fetchval(query)
    if count:
        history.failures.append(Failure(f"the database: {count} {what}", "LEFT_BEHIND"))


def _sight(row: Any, entries: tuple[Entry, ...], *, began: float) -> Sight:
    return Sight(
        user=row["user_id"],
        session=row["session_id"],
        began=began,
        ended=now(),
        by="the database",
        revision=row["revision"],
        uid=row["uid"],
        count=row["message_count"],
        entries=entries,
        active_run=row["active_run_id"],
    )


def _entry(row: Any) -> Entry:
    created: datetime = row["create_time"]
    # As a Timestamp tells it: exact, where a float is not.
    nanoseconds = int(created.timestamp()) * 1_000_000_000 + created.microsecond * 1_000
    return Entry(row["position"], row["message_id"], row["content"], nanoseconds)
