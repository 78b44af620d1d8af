"""Withdrawing a question, in the transaction of a connection."""

from services.storage.errors import HitlTaskNotFound, HitlTaskNotPending, SessionDeleted
from services.storage.models import HitlState, HitlTask
from services.storage.store.postgres.changes import CHANGED, bucket
from services.storage.store.postgres.database import Connection, Statement
from services.storage.store.postgres.hitl_tasks import find_task, set_state
from services.storage.store.postgres.requests import RequestRecord
from services.storage.store.postgres.runs import ExpiredRunFound
from services.storage.store.postgres.session_lock import lock_if_there

_WITHDRAW = Statement(f"""
    WITH the_change AS ({CHANGED})
    UPDATE sessions AS s
    SET revision = s.revision + 1, update_time = statement_timestamp(),
        pending_hitl_task_id = CASE WHEN s.pending_hitl_task_id = :task_id THEN '' ELSE s.pending_hitl_task_id END,
        pending_hitl_expire_time =
            CASE WHEN s.pending_hitl_task_id <> :task_id THEN s.pending_hitl_expire_time END
    WHERE s.user_id = :user_id AND s.session_id = :session_id""")


async def cancel_hitl_task(
    connection: Connection, *, user_id: str, task_id: str, record: RequestRecord | None
) -> HitlTask:
    """Raises ExpiredRunFound too."""
    task = await find_task(connection, user_id=user_id, task_id=task_id)
    session_id = task.session_id if task else ""
    if record is not None:
        known = await record.claim(connection, session_id=session_id, result={"task_id": task_id})
        if known is not None:
            task = await find_task(connection, user_id=user_id, task_id=task_id)
            if task is None or not known:
                raise SessionDeleted(session_id)
            return task
    names = {"user_id": user_id, "session_id": session_id}
    session = await lock_if_there(connection, **names, answers_task_id=task_id)
    if session is None or session.question is None:
        raise HitlTaskNotFound(task_id)
    if session.question.state is HitlState.CLAIMED and session.active_expired:
        # The claim of a dead run is undone.
        raise ExpiredRunFound(session_id)
    if session.question.state is not HitlState.PENDING:
        raise HitlTaskNotPending(task_id, state=session.question.state)
    withdrawn = await set_state(connection, user_id=user_id, task_id=task_id, state=HitlState.CANCELLED)
    await connection.execute(_WITHDRAW, {**names, "task_id": task_id, "bucket": bucket(session_id)})
    return withdrawn
