"""Ending a run without its holder: it died, was asked to stop and did not, or has to give way.

Once nothing can keep the run alive any more, its log is closed, so that a holder that still lives tells no more,
and then read: what anyone has seen of the reply is what is stored.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from services.storage.errors import Contention, EventLogUnavailable
from services.storage.models import REPLY_STATUS, HitlState, Message, MessageType, Run, RunError, RunStatus
from services.storage.store.events import RunEventLog
from services.storage.store.postgres.changes import CHANGED, bucket
from services.storage.store.postgres.database import Connection, Database, Statement
from services.storage.store.postgres.hitl_tasks import set_state
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.messages import INSERT_MESSAGE, insert_parameters
from services.storage.store.postgres.queue import cancel_queued
from services.storage.store.postgres.rows import RUN, to_run
from services.storage.store.postgres.runs import get_run

_ATTEMPTS = 3
_REPLY_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ends; `after_lease` where it may not while its lease holds."""

    status: RunStatus
    error: RunError | None
    after_lease: bool


# The numbers are those of google.rpc.Code: UNAVAILABLE and ABORTED.
HOLDER_LOST = Ending(
    status=RunStatus.FAILED,
    error=RunError(code=14, reason="HOLDER_LOST", message="the run's holder stopped renewing its lease"),
    after_lease=True,
)
STOPPED = Ending(status=RunStatus.CANCELLED, error=None, after_lease=True)
REPLACED = Ending(
    status=RunStatus.CANCELLED,
    error=RunError(code=10, reason="RUN_REPLACED", message="a newer run of the session took its place"),
    after_lease=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunName:
    user_id: str
    session_id: str
    run_id: str


async def end_without_holder(
    database: Database,
    log: RunEventLog,
    run: RunName,
    ending: Ending,
    *,
    waits: bool = True,
    needs_log: bool = False,
) -> bool:
    """Ends the run with what its log has of the reply. False where it is not to be ended.

    Without `waits` it is not ended either where another holds its session just now; nor with `needs_log` where
    the log cannot be reached, which then raises EventLogUnavailable.
    """
    return await database.transaction(partial(_end, log=log, run=run, ending=ending, waits=waits, needs_log=needs_log))


async def _last_words(log: RunEventLog, run: RunName, *, needs_log: bool) -> str:
    await log.end(run.user_id, run.run_id)
    try:
        return _as_stored(await log.reply_text(run.user_id, run.run_id))
    except EventLogUnavailable:
        if needs_log:
            raise
        return ""


def _as_stored(said: str) -> str:
    """Without what a table or a message cannot hold."""
    text = said.replace("\0", "")
    encoded = text.encode(errors="replace")
    return encoded[:_REPLY_MAX_BYTES].decode(errors="ignore")


_FIND_EXPIRED = Statement("""
    SELECT r.run_id, r.lease_expire_time <= statement_timestamp() AS has_expired FROM runs AS r
    WHERE r.user_id = :user_id AND r.run_id = (
        SELECT s.active_run_id FROM sessions AS s WHERE s.user_id = :user_id AND s.session_id = :session_id
    )""")


async def end_expired(database: Database, log: RunEventLog, *, user_id: str, session_id: str) -> None:
    """Ends the run that holds the session, if its lease has run out."""
    for found in await database.rows(_FIND_EXPIRED, {"user_id": user_id, "session_id": session_id}):
        if found.has_expired:
            run = RunName(user_id=user_id, session_id=session_id, run_id=found.run_id)
            await end_without_holder(database, log, run, HOLDER_LOST)


_ASK_TO_STOP = Statement(f"""
    UPDATE runs AS r SET cancel_requested = true
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND r.status = 2 AND r.lease_expire_time > clock_timestamp()
    RETURNING {RUN}""")


async def cancel_run(database: Database, log: RunEventLog, user_id: str, run_id: str) -> Run:
    names = {"user_id": user_id, "run_id": run_id}
    # Whatever the run becomes between two looks is found by the next.
    for _ in range(_ATTEMPTS):
        for row in await database.rows(_ASK_TO_STOP, names):
            return to_run(row)
        run = await get_run(database, user_id, run_id)
        if run.status is RunStatus.QUEUED:
            cancel = partial(cancel_queued, user_id=user_id, session_id=run.session_id, run_id=run_id)
            cancelled = await database.transaction(cancel)
            if cancelled is not None:
                return cancelled
        elif run.status is RunStatus.RUNNING:
            name = RunName(user_id=user_id, session_id=run.session_id, run_id=run_id)
            if await end_without_holder(database, log, name, STOPPED):
                return await get_run(database, user_id, run_id)
        else:
            return run
    raise Contention


_LOCK = """
    SELECT s.active_run_id, s.message_count, s.revision FROM sessions AS s
    WHERE s.user_id = :user_id AND s.session_id = :session_id FOR UPDATE"""
_LOCKS = {True: Statement(_LOCK), False: Statement(f"{_LOCK} SKIP LOCKED")}
"""By whether it waits."""

# A renewal at the same time comes before this, and keeps the run alive, or waits for its end, and is refused.
_LOCK_RUN = Statement("""
    SELECT r.answered_task_id FROM runs AS r
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND r.status = 2
        AND (r.lease_expire_time <= clock_timestamp() OR NOT CAST(:after_lease AS boolean))
    FOR UPDATE""")

_END = Statement(f"""
    UPDATE runs AS r
    SET status = CAST(:status AS smallint),
        cancel_requested = r.cancel_requested OR CAST(:status AS smallint) = {RunStatus.CANCELLED},
        error_code = :error_code, error_reason = :error_reason, error_message = :error_message,
        finish_time = clock_timestamp(), session_revision = :revision, ai_position = :ai_position,
        ai_message_id = :ai_message_id
    WHERE r.user_id = :user_id AND r.run_id = :run_id
    RETURNING r.finish_time""")

_FREE = Statement(f"""
    WITH the_change AS ({CHANGED})
    UPDATE sessions AS s
    SET active_run_id = '', pending_hitl_task_id = :task_id, pending_hitl_expire_time = :task_expire_time,
        revision = s.revision + 1, message_count = s.message_count + CAST(:replies AS bigint),
        update_time = statement_timestamp()
    WHERE s.user_id = :user_id AND s.session_id = :session_id""")


async def _end(
    connection: Connection, *, log: RunEventLog, run: RunName, ending: Ending, waits: bool, needs_log: bool
) -> bool:
    names = {"user_id": run.user_id, "session_id": run.session_id}
    session = await connection.row(_LOCKS[waits], names)
    if session is None or session.active_run_id != run.run_id:
        return False
    run_names = {"user_id": run.user_id, "run_id": run.run_id}
    locked = await connection.row(_LOCK_RUN, {**run_names, "after_lease": ending.after_lease})
    if locked is None:
        return False
    text = await _last_words(log, run, needs_log=needs_log)
    position, message_id = (session.message_count + 1, new_id()) if text else (0, "")
    ended = await connection.one(
        _END,
        {
            **run_names,
            "status": ending.status,
            "error_code": ending.error.code if ending.error else None,
            "error_reason": ending.error.reason if ending.error else None,
            "error_message": ending.error.message if ending.error else None,
            "revision": session.revision + 1,
            "ai_position": position,
            "ai_message_id": message_id,
        },
    )
    if text:
        reply = _reply(text, ending, run=run, position=position, message_id=message_id, now=ended.finish_time)
        await connection.execute(
            INSERT_MESSAGE, insert_parameters(reply, user_id=run.user_id, session_id=run.session_id)
        )
    task = None
    if locked.answered_task_id:
        task = await set_state(
            connection, user_id=run.user_id, task_id=locked.answered_task_id, state=HitlState.PENDING
        )
    await connection.execute(
        _FREE,
        {
            **names,
            "bucket": bucket(run.session_id),
            "replies": int(bool(text)),
            "task_id": task.task_id if task else "",
            "task_expire_time": task.expire_time if task else None,
        },
    )
    return True


def _reply(text: str, ending: Ending, *, run: RunName, position: int, message_id: str, now: datetime) -> Message:
    return Message(
        position=position,
        message_id=message_id,
        type=MessageType.AI,
        status=REPLY_STATUS[ending.status],
        content=text,
        create_time=now,
        run_id=run.run_id,
    )
