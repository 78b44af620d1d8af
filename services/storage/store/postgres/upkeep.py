"""What time brings about, a batch at a time: the ends of dead runs, of lost places and of old questions.

A batch passes over what another holds, and waits for nobody.
"""

from datetime import timedelta

from services.storage.errors import EventLogUnavailable
from services.storage.models import HitlState
from services.storage.store.events import RunEventLog
from services.storage.store.postgres.database import Database, Statement
from services.storage.store.postgres.end import HOLDER_LOST, RunName, end_with_text
from services.storage.store.postgres.rows import LOST_PLACE

_BATCH = 1_000
_RUNS_BATCH = 100
_LOG_AWAITED = timedelta(seconds=15)

_EXPIRED = Statement(f"""
    SELECT r.user_id, r.session_id, r.run_id,
        r.lease_expire_time <= statement_timestamp() - CAST(:log_awaited AS interval) AS has_waited
    FROM runs AS r WHERE r.status = 2 AND r.lease_expire_time <= statement_timestamp()
    ORDER BY r.lease_expire_time LIMIT {_RUNS_BATCH}""")


async def end_expired_runs(database: Database, log: RunEventLog) -> int:
    """Where the log is away a run waits a while for it to come back, since it knows what the user has seen."""
    count, log_is_away = 0, False
    for row in await database.rows(_EXPIRED, {"log_awaited": _LOG_AWAITED}):
        said = ""
        if not log_is_away:
            try:
                said = await log.reply_text(row.user_id, row.run_id)
            except EventLogUnavailable:
                log_is_away = True
        if log_is_away and not row.has_waited:
            continue
        run = RunName(user_id=row.user_id, session_id=row.session_id, run_id=row.run_id)
        count += await end_with_text(database, log, run, HOLDER_LOST, said=said, waits=False)
    return count


_DROP_LOST = Statement(f"""
    WITH lost AS (
        SELECT r.user_id, r.run_id FROM runs AS r WHERE {LOST_PLACE}
        ORDER BY r.queue_asked_time LIMIT {_BATCH} FOR UPDATE SKIP LOCKED
    )
    DELETE FROM runs AS r USING lost WHERE r.user_id = lost.user_id AND r.run_id = lost.run_id
    RETURNING r.run_id""")


async def drop_lost_places(database: Database) -> int:
    return len(await database.rows(_DROP_LOST, {}))


# Their time alone has made them what is written down here: no revision moves.
_EXPIRE = Statement(f"""
    WITH due AS (
        SELECT t.user_id, t.task_id FROM hitl_tasks AS t
        JOIN sessions AS s ON s.user_id = t.user_id AND s.session_id = t.session_id
        WHERE t.state = {HitlState.PENDING} AND t.expire_time <= statement_timestamp()
        ORDER BY t.expire_time LIMIT {_BATCH} FOR UPDATE SKIP LOCKED
    ), expired AS (
        UPDATE hitl_tasks AS t SET state = {HitlState.EXPIRED}, resolve_time = t.expire_time
        FROM due WHERE t.user_id = due.user_id AND t.task_id = due.task_id
        RETURNING t.user_id, t.session_id, t.task_id
    ), the_sessions AS (
        UPDATE sessions AS s SET pending_hitl_task_id = '', pending_hitl_expire_time = NULL
        FROM expired AS t
        WHERE s.user_id = t.user_id AND s.session_id = t.session_id AND s.pending_hitl_task_id = t.task_id
    )
    SELECT count(*) AS done FROM expired""")


async def expire_hitl_tasks(database: Database) -> int:
    [row] = await database.rows(_EXPIRE, {})
    return int(row.done)
