"""What time brings about, a batch at a time: the ends of dead runs, of lost places and of old questions.

A batch passes over what another holds, and waits for nobody.
"""

from datetime import timedelta
from typing import Any

import structlog

from services.runtime.errors import ServiceError, TimeLimit
from services.storage.errors import Contention, EventLogUnavailable
from services.storage.models import HitlState, RunStatus
from services.storage.store.events import RunEventLog
from services.storage.store.postgres.database import Database, Row, Statement
from services.storage.store.postgres.end import HOLDER_LOST, RunName, end_without_holder
from services.storage.store.postgres.failures import StatementFault
from services.storage.store.postgres.rows import LOST_PLACE

_BATCH = 1_000
_RUNS_BATCH = 100
_LOG_AWAITED = timedelta(seconds=15)

_log = structlog.get_logger()

# The first condition on the time is what the index can start from; the second cuts ties.
_EXPIRED = Statement(f"""
    SELECT r.user_id, r.session_id, r.run_id, r.lease_expire_time,
        r.lease_expire_time <= statement_timestamp() - CAST(:log_awaited AS interval) AS has_waited
    FROM runs AS r
    WHERE r.status = {RunStatus.RUNNING} AND r.lease_expire_time <= statement_timestamp()
        AND r.lease_expire_time >= coalesce(CAST(:after_time AS timestamptz), '-infinity')
        AND (r.lease_expire_time, r.user_id, r.run_id)
            > (coalesce(CAST(:after_time AS timestamptz), '-infinity'), :after_user_id, :after_run_id)
    ORDER BY r.lease_expire_time, r.user_id, r.run_id LIMIT {_RUNS_BATCH}""")


async def end_expired_runs(database: Database, log: RunEventLog) -> int:
    """Where the log is away a run waits a while for it to come back, since it knows what the user has seen.

    One that cannot be ended now is passed over, and keeps none of those that come after it from their end.
    """
    count = 0
    after: dict[str, Any] = {"after_time": None, "after_user_id": "", "after_run_id": ""}
    while True:
        rows = await database.rows(_EXPIRED, {"log_awaited": _LOG_AWAITED, **after})
        left = 0
        for row in rows:
            try:
                has_ended = await _end_expired(database, log, row)
            except EventLogUnavailable:
                # Those that come after it have waited for less.
                return count
            count += has_ended
            left += not has_ended
        # Those that are left stand first, and would be all that a batch ever sees.
        if len(rows) < _RUNS_BATCH or not left or count >= _BATCH:
            return count
        last = rows[-1]
        after = {"after_time": last.lease_expire_time, "after_user_id": last.user_id, "after_run_id": last.run_id}


async def _end_expired(database: Database, log: RunEventLog, row: Row) -> bool:
    run = RunName(user_id=row.user_id, session_id=row.session_id, run_id=row.run_id)
    try:
        return await end_without_holder(database, log, run, HOLDER_LOST, waits=False, needs_log=not row.has_waited)
    except (StatementFault, Contention, TimeLimit) as error:
        reason = error.reason if isinstance(error, ServiceError) else str(error)
        _log.warning("run_not_ended", run_id=run.run_id, reason=reason)
        return False


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
