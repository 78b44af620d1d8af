"""A session's row under lock, with all that decides whether a run may begin there."""

from dataclasses import dataclass

from services.storage.errors import Contention
from services.storage.models import HitlTask, RunStatus
from services.storage.store.postgres.database import Connection, Statement
from services.storage.store.postgres.hitl_tasks import find_task
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.rows import LOST_PLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSession:
    """As it is now that nobody else can change it; "" and None stand for what there is not.

    `active_expired` where the lease of its run has run out. `first_queued` is the run whose turn comes next.
    `question` is the one that the message may answer.
    """

    user_id: str
    session_id: str
    uid: str
    revision: int
    message_count: int
    fencing_counter: int
    active_run_id: str
    active_expired: bool
    first_queued: str
    question: HitlTask | None


# A statement that waited for a lock sees the row that it locks anew, but all else as it was before. Every
# change of a session's run moves its revision: `outdated` tells that there was one.
_LOCK = Statement(f"""
    SELECT s.uid, s.revision, s.message_count, s.fencing_counter, s.active_run_id, s.pending_hitl_task_id,
        s.revision <> (
            SELECT o.revision FROM sessions AS o WHERE o.user_id = :user_id AND o.session_id = :session_id
        ) AS outdated,
        CASE WHEN s.active_run_id <> '' THEN (
            SELECT a.lease_expire_time <= statement_timestamp() FROM runs AS a
            WHERE a.user_id = s.user_id AND a.run_id = s.active_run_id
        ) END AS active_expired, (
            SELECT r.run_id FROM runs AS r
            WHERE r.user_id = s.user_id AND r.session_id = s.session_id AND r.status = {RunStatus.QUEUED}
                AND NOT ({LOST_PLACE})
            ORDER BY r.queue_place LIMIT 1
        ) AS first_queued
    FROM sessions AS s
    WHERE s.user_id = :user_id AND s.session_id = :session_id
    FOR UPDATE OF s""")

_CREATE = Statement("""
    INSERT INTO sessions AS s (user_id, session_id, uid, create_time, update_time)
    VALUES (:user_id, :session_id, :uid, statement_timestamp(), statement_timestamp())
    ON CONFLICT (user_id, session_id) DO NOTHING
    RETURNING s.uid""")


async def lock_if_there(
    connection: Connection, *, user_id: str, session_id: str, answers_task_id: str = ""
) -> LockedSession | None:
    names = {"user_id": user_id, "session_id": session_id}
    row = await connection.row(_LOCK, names)
    if row is not None and row.outdated:
        row = await connection.row(_LOCK, names)
    if row is None:
        return None
    # Most turns have none. Joining it to the lock would cost all of them more than reading it costs the others.
    task_id = answers_task_id or row.pending_hitl_task_id
    return LockedSession(
        user_id=user_id,
        session_id=session_id,
        uid=row.uid,
        revision=row.revision,
        message_count=row.message_count,
        fencing_counter=row.fencing_counter,
        active_run_id=row.active_run_id,
        active_expired=bool(row.active_expired),
        first_queued=row.first_queued or "",
        question=await find_task(connection, user_id=user_id, task_id=task_id) if task_id else None,
    )


async def lock_or_create(
    connection: Connection, *, user_id: str, session_id: str, answers_task_id: str = ""
) -> LockedSession:
    # The second round meets a session that someone else made in between.
    for _ in range(2):
        session = await lock_if_there(
            connection, user_id=user_id, session_id=session_id, answers_task_id=answers_task_id
        )
        if session is not None:
            return session
        uid = await connection.value(_CREATE, {"user_id": user_id, "session_id": session_id, "uid": new_id()})
        if uid is not None:
            return LockedSession(
                user_id=user_id,
                session_id=session_id,
                uid=uid,
                revision=0,
                message_count=0,
                fencing_counter=0,
                active_run_id="",
                active_expired=False,
                first_queued="",
                question=None,
            )
    raise Contention
