"""Deleting sessions with all that is theirs, in the transaction of a connection.

However much there is of it: no statement deletes more than so many rows, so that none outruns its limit.
"""

from collections.abc import Sequence

from services.storage.store.postgres.changes import BUCKETS_CHANGED, bucket
from services.storage.store.postgres.database import Connection, Row, Statement

ROWS = 1_000
"""That one statement deletes at most."""

_DELETE_RANGE = Statement("""
    DELETE FROM messages
    WHERE user_id = :user_id AND session_id = :session_id AND position > :after AND position <= :through""")

# Also of those that wait in a queue: only that there was a request.
_FORGET = Statement("""
    WITH queued AS (
        INSERT INTO requests (user_id, request_key, request_hash, create_time)
        SELECT r.user_id, r.request_key, r.request_hash, statement_timestamp() FROM runs AS r
        WHERE r.user_id = :user_id AND r.session_id = ANY(:session_ids) AND r.status = 1
            AND r.request_key IS NOT NULL
        ON CONFLICT DO NOTHING
    )
    UPDATE requests SET session_id = NULL, result = NULL
    WHERE user_id = :user_id AND session_id = ANY(:session_ids)""")

_FIND = Statement("""
    SELECT
        ARRAY(SELECT run_id FROM runs WHERE user_id = :user_id AND session_id = ANY(:session_ids)) AS run_ids,
        ARRAY(
            SELECT task_id FROM hitl_tasks WHERE user_id = :user_id AND session_id = ANY(:session_ids)
        ) AS task_ids""")

_DELETE_RUNS = Statement("DELETE FROM runs WHERE user_id = :user_id AND run_id = ANY(:ids)")
_DELETE_TASKS = Statement("DELETE FROM hitl_tasks WHERE user_id = :user_id AND task_id = ANY(:ids)")
_DELETE = Statement("DELETE FROM sessions WHERE user_id = :user_id AND session_id = ANY(:session_ids)")
_CHANGED = Statement(BUCKETS_CHANGED)


async def delete_sessions(connection: Connection, *, user_id: str, sessions: Sequence[Row]) -> Sequence[str]:
    """Deletes sessions that the connection has locked, of one user; returns the ids of their runs.

    Each row has a session_id and its message_count. This ends the transaction's statements.
    """
    names = {"user_id": user_id, "session_ids": [session.session_id for session in sessions]}
    await connection.execute(_FORGET, names)
    found = await connection.one(_FIND, names)
    for session in sessions:
        if session.message_count > ROWS:
            await delete_range(
                connection, user_id=user_id, session_id=session.session_id, after=0, through=session.message_count
            )
    for statement, ids in ((_DELETE_RUNS, found.run_ids), (_DELETE_TASKS, found.task_ids)):
        if len(ids) > ROWS:
            for start in range(0, len(ids), ROWS):
                await connection.execute(statement, {"user_id": user_id, "ids": ids[start : start + ROWS]})
    # What is left of them goes with them.
    await connection.execute(_DELETE, names)
    # By itself, after all the rest, of which there may be much.
    buckets = sorted({bucket(session.session_id) for session in sessions})
    await connection.execute(_CHANGED, {"user_id": user_id, "buckets": buckets})
    run_ids: list[str] = found.run_ids
    return run_ids


async def delete_range(connection: Connection, *, user_id: str, session_id: str, after: int, through: int) -> None:
    """The messages after a position, through another."""
    names = {"user_id": user_id, "session_id": session_id}
    for start in range(after, through, ROWS):
        await connection.execute(_DELETE_RANGE, {**names, "after": start, "through": min(start + ROWS, through)})
