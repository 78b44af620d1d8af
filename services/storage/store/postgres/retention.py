"""Deleting what is past its time, a batch at a time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from services.storage.models import RunStatus
from services.storage.store.events import RunEventLog
from services.storage.store.postgres.database import Connection, Database, Row, Statement
from services.storage.store.postgres.deletion import delete_sessions

BATCH_ROWS = 1_000
_MORE_OF_A_USER = 100
_BATCH_S = 0.5

# A session that a message waits for is in use, too.
_UNUSED = f"""
    s.active_run_id = '' AND NOT EXISTS (
        SELECT 1 FROM runs AS r
        WHERE r.user_id = s.user_id AND r.session_id = s.session_id AND r.status = {RunStatus.QUEUED})"""
_EXPIRED = "s.expire_time <= statement_timestamp()"
_AGED = "s.expire_time IS NULL AND s.update_time <= statement_timestamp() - CAST(:ttl AS interval)"


def _first(due: str, *, by: str) -> Statement:
    """Two statements, since each has its index."""
    return Statement(f"""
        SELECT s.user_id, s.session_id, s.message_count FROM sessions AS s WHERE {due} AND {_UNUSED}
        ORDER BY s.{by} LIMIT 1 FOR UPDATE SKIP LOCKED""")


_FIRST_EXPIRED, _FIRST_AGED = _first(_EXPIRED, by="expire_time"), _first(_AGED, by="update_time")

_OTHERS = Statement(f"""
    SELECT s.session_id, s.message_count FROM sessions AS s
    WHERE s.user_id = :user_id AND s.session_id <> :session_id AND ({_EXPIRED} OR ({_AGED})) AND {_UNUSED}
    LIMIT {_MORE_OF_A_USER} FOR UPDATE SKIP LOCKED""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deleted:
    user_id: str
    sessions: int
    rows: int
    run_ids: Sequence[str]


async def delete_expired_sessions(database: Database, *, ttl: timedelta | None, events: RunEventLog) -> int:
    """A user's in each transaction; `ttl` is that of a session without a time of its own.

    A session goes whole: one that is larger than a batch, alone. A batch ends early where it takes long.
    """
    count, room, until = 0, BATCH_ROWS, time.monotonic() + _BATCH_S
    for first in (_FIRST_EXPIRED,) if ttl is None else (_FIRST_EXPIRED, _FIRST_AGED):
        while not count or time.monotonic() < until:
            work = partial(_delete_of_one_user, first=first, ttl=ttl, room=room, is_first=not count)
            deleted = await database.transaction(work)
            if deleted is None:
                break
            await events.forget(deleted.user_id, deleted.run_ids)
            count += deleted.sessions
            room -= deleted.rows
    return count


async def _delete_of_one_user(
    connection: Connection, *, first: Statement, ttl: timedelta | None, room: int, is_first: bool
) -> _Deleted | None:
    """None where there is nothing to delete, or nothing that there is room for."""
    session = await connection.row(first, {"ttl": ttl})
    if session is None or not (_rows(session) <= room or is_first):
        return None
    user_id, batch, rows = session.user_id, [session], _rows(session)
    if rows < room:
        # Those that do not fit are let go with the transaction.
        names = {"user_id": user_id, "session_id": session.session_id}
        for other in await connection.rows(_OTHERS, {**names, "ttl": ttl}):
            if rows + _rows(other) <= room:
                batch.append(other)
                rows += _rows(other)
    run_ids = await delete_sessions(connection, user_id=user_id, sessions=batch)
    return _Deleted(user_id=user_id, sessions=len(batch), rows=rows, run_ids=run_ids)


def _rows(session: Row) -> int:
    return int(session.message_count) + 1


# The last is looked up in the order of an index: where the planner is free to join, it may read all of a user's.
_OLD_RUNS = Statement(f"""
    WITH old AS MATERIALIZED (
        SELECT r.user_id, r.run_id, r.session_id, r.create_time, r.finish_time
        FROM runs AS r
        WHERE r.finish_time <= statement_timestamp() - CAST(:ttl AS interval)
            AND r.finish_time >= :after_time AND (r.finish_time, r.user_id, r.run_id) > (:after_time, :user_id, :run_id)
        ORDER BY r.finish_time, r.user_id, r.run_id LIMIT {BATCH_ROWS}
    ), followed AS MATERIALIZED (
        SELECT r.user_id, r.run_id
        FROM runs AS r JOIN old AS o ON o.user_id = r.user_id AND o.run_id = r.run_id
        WHERE o.run_id <> (
            SELECT l.run_id FROM runs AS l
            WHERE l.user_id = o.user_id AND l.session_id = o.session_id AND l.status <> {RunStatus.QUEUED}
            ORDER BY l.create_time DESC, l.run_id LIMIT 1
        )
        FOR UPDATE OF r SKIP LOCKED
    ), deleted AS (
        DELETE FROM runs AS r USING followed AS f WHERE r.user_id = f.user_id AND r.run_id = f.run_id RETURNING 1
    )
    SELECT o.finish_time, o.user_id, o.run_id, (SELECT count(*) FROM deleted) AS deleted
    FROM old AS o ORDER BY o.finish_time DESC, o.user_id DESC, o.run_id DESC LIMIT 1""")

_BEFORE_ALL = {"after_time": datetime(1, 1, 2, tzinfo=UTC), "user_id": "", "run_id": ""}
_FROM_THE_START_AFTER = timedelta(days=1)
_MOST_LOOKED_AT = 10


class OldRuns:
    """Walks through the runs that ended more than `ttl` ago, and deletes all but each session's last.

    Every session that is no longer used leaves one there for good. So the walk goes on from where it was, and
    from the start once it has come to the end and `again_after` is over, for those that were their session's
    last when it came by.
    """

    def __init__(self, database: Database, *, ttl: timedelta, again_after: timedelta = _FROM_THE_START_AFTER):
        self._database = database
        self._ttl = ttl
        self._again_after_s = again_after.total_seconds()
        self._after: Mapping[str, Any] = _BEFORE_ALL
        self._began = time.monotonic()

    async def delete_batch(self) -> int:
        # The few that are to go may lie behind many that stay; but others wait for their turn, too.
        for _ in range(_MOST_LOOKED_AT):
            rows = await self._database.rows(_OLD_RUNS, {"ttl": self._ttl, **self._after})
            if not rows:
                if time.monotonic() >= self._began + self._again_after_s:
                    self._after, self._began = _BEFORE_ALL, time.monotonic()
                return 0
            [last] = rows
            self._after = {"after_time": last.finish_time, "user_id": last.user_id, "run_id": last.run_id}
            if last.deleted:
                return int(last.deleted)
        return 0


# A while longer than they count for, so that none goes between two looks of a request that is a repeat.
_FORGET_REQUESTS = Statement(f"""
    WITH old AS MATERIALIZED (
        SELECT q.user_id, q.request_key FROM requests AS q
        WHERE q.create_time <= statement_timestamp() - interval '1 day 5 minutes'
        ORDER BY q.create_time LIMIT {BATCH_ROWS} FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM requests AS q USING old AS o WHERE q.user_id = o.user_id AND q.request_key = o.request_key
        RETURNING 1
    )
    SELECT count(*) AS deleted FROM deleted""")


async def forget_requests(database: Database) -> int:
    [row] = await database.rows(_FORGET_REQUESTS, {})
    return int(row.deleted)
