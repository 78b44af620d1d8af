"""What goes with every change of a session's history by a caller, in the transaction that holds its row."""

from collections.abc import Mapping
from typing import Any

from services.storage.models import HitlState, Session
from services.storage.store.postgres.changes import SESSION_CHANGED, bucket
from services.storage.store.postgres.database import Connection, Statement
from services.storage.store.postgres.hitl_tasks import set_state
from services.storage.store.postgres.metadata import MERGED_METADATA, check_merged, merge_parameters
from services.storage.store.postgres.rows import SESSION, to_session
from services.storage.store.postgres.session_lock import LockedSession

# A question is its run's reply, or the message that began the run where there is none. Of a run that retention
# has deleted only its messages tell.
_IS_ASKED = Statement("""
    SELECT CASE WHEN r.run_id IS NULL THEN EXISTS (
            SELECT 1 FROM messages AS m
            WHERE m.user_id = :user_id AND m.session_id = :session_id AND m.run_id = :run_id
        ) ELSE EXISTS (
            SELECT 1 FROM messages AS m
            WHERE m.user_id = :user_id AND m.session_id = :session_id
                AND m.message_id = CASE WHEN r.ai_message_id = '' THEN r.human_message_id ELSE r.ai_message_id END
        ) END
    FROM (SELECT 1) AS one LEFT JOIN runs AS r ON r.user_id = :user_id AND r.run_id = :run_id""")


async def cancel_unasked(connection: Connection, session: LockedSession) -> bool:
    """Cancels the question that waits, where its message is gone; whether it did."""
    task = session.question
    if task is None or task.state is not HitlState.PENDING:
        return False
    names = {"user_id": session.user_id, "session_id": session.session_id, "run_id": task.run_id}
    if await connection.value(_IS_ASKED, names):
        return False
    await set_state(connection, user_id=session.user_id, task_id=task.task_id, state=HitlState.CANCELLED)
    return True


# The note speaks of nothing that is gone, or the next one would come too late to replace it.
_CHANGE = Statement(f"""
    WITH the_session AS (
        UPDATE sessions AS s
        SET revision = s.revision + 1, message_count = :count, update_time = statement_timestamp(),
            note_through_position = least(s.note_through_position, :count), metadata = {MERGED_METADATA},
            pending_hitl_task_id = CASE WHEN CAST(:cancels AS boolean) THEN '' ELSE s.pending_hitl_task_id END,
            pending_hitl_expire_time
                = CASE WHEN CAST(:cancels AS boolean) THEN NULL ELSE s.pending_hitl_expire_time END
        WHERE s.user_id = :user_id AND s.session_id = :session_id
        RETURNING {SESSION}
    ), the_change AS ({SESSION_CHANGED})
    SELECT * FROM the_session""")


async def change_session(
    connection: Connection, session: LockedSession, *, count: int, cancels: bool, metadata: Mapping[str, Any]
) -> Session:
    """The transaction's last statement. Raises InvalidField where the metadata outgrows its limits."""
    row = await connection.one(
        _CHANGE,
        {
            "user_id": session.user_id,
            "session_id": session.session_id,
            "bucket": bucket(session.session_id),
            "count": count,
            "cancels": cancels,
            **merge_parameters(metadata),
        },
    )
    changed = to_session(row)
    check_merged(changed, metadata)
    return changed
