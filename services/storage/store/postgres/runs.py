"""Runs by themselves: reading one, renewing its lease, ending one whose lease has run out."""

from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.storage.errors import LeaseLost, RunNotFound
from services.storage.models import HitlState, Run, RunError, RunStatus
from services.storage.store.postgres.changes import CHANGED, bucket
from services.storage.store.postgres.database import Database
from services.storage.store.postgres.hitl_tasks import set_state
from services.storage.store.postgres.rows import RUN, to_run

# 14 is UNAVAILABLE.
_HOLDER_LOST = RunError(code=14, reason="HOLDER_LOST", message="the run's holder stopped renewing its lease")

_GET = text(f"SELECT {RUN} FROM runs AS r WHERE r.user_id = :user_id AND r.run_id = :run_id")


async def get_run(database: Database, user_id: str, run_id: str) -> Run:
    for row in await database.statement(_GET, {"user_id": user_id, "run_id": run_id}):
        return to_run(row)
    raise RunNotFound(run_id)


async def find_run(connection: AsyncConnection, *, user_id: str, run_id: str) -> Row[Any] | None:
    return (await connection.execute(_GET, {"user_id": user_id, "run_id": run_id})).one_or_none()


_RENEW = text(f"""
    UPDATE runs AS r SET lease_expire_time = clock_timestamp() + r.lease
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND r.fencing_token = :fencing_token AND r.status = 2
    RETURNING {RUN}""")


async def renew_run(database: Database, user_id: str, run_id: str, *, fencing_token: int) -> Run:
    parameters = {"user_id": user_id, "run_id": run_id, "fencing_token": fencing_token}
    for row in await database.statement(_RENEW, parameters):
        return to_run(row)
    await get_run(database, user_id, run_id)
    raise LeaseLost(run_id)


class ExpiredRunFound(Exception):
    """A run whose lease has run out holds the session: it is to be ended, then the work begun anew."""

    def __init__(self, session_id: str):
        super().__init__()
        self.session_id = session_id


_LOCK = text("""
    SELECT active_run_id, revision FROM sessions
    WHERE user_id = :user_id AND session_id = :session_id FOR UPDATE""")

# The lease is compared by the very statement that ends the run: a renewal at the same time comes before it,
# and keeps the run alive, or after it, and is refused.
_END_EXPIRED = text("""
    UPDATE runs AS r
    SET status = :status, error_code = :error_code, error_reason = :error_reason, error_message = :error_message,
        finish_time = clock_timestamp(), session_revision = :revision
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND r.status = 2 AND r.lease_expire_time <= clock_timestamp()
    RETURNING r.answered_task_id""")

_FREE = text(f"""
    WITH the_change AS ({CHANGED})
    UPDATE sessions AS s
    SET active_run_id = '', pending_hitl_task_id = :task_id, pending_hitl_expire_time = :task_expire_time,
        revision = s.revision + 1, update_time = statement_timestamp()
    WHERE s.user_id = :user_id AND s.session_id = :session_id""")


async def end_expired_run(connection: AsyncConnection, *, user_id: str, session_id: str) -> None:
    """Ends the session's run as FAILED if its lease has run out; its claimed question is PENDING again."""
    names = {"user_id": user_id, "session_id": session_id}
    session = (await connection.execute(_LOCK, names)).one_or_none()
    if session is None or not session.active_run_id:
        return
    ended = await connection.execute(
        _END_EXPIRED,
        {
            "user_id": user_id,
            "run_id": session.active_run_id,
            "status": RunStatus.FAILED,
            "error_code": _HOLDER_LOST.code,
            "error_reason": _HOLDER_LOST.reason,
            "error_message": _HOLDER_LOST.message,
            "revision": session.revision + 1,
        },
    )
    run = ended.one_or_none()
    if run is None:
        return
    task = None
    if run.answered_task_id:
        task = await set_state(connection, user_id=user_id, task_id=run.answered_task_id, state=HitlState.PENDING)
    await connection.execute(
        _FREE,
        {
            **names,
            "bucket": bucket(session_id),
            "task_id": task.task_id if task else "",
            "task_expire_time": task.expire_time if task else None,
        },
    )
