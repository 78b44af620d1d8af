"""Reading, listing and deleting sessions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from services.storage.errors import SessionNotFound
from services.storage.models import Session
from services.storage.store.postgres.database import Connection, Database, Statement
from services.storage.store.postgres.deletion import delete_sessions
from services.storage.store.postgres.requests import RequestRecord
from services.storage.store.postgres.rows import (
    BASIC_SESSION,
    FULL_SESSION_BYTES,
    SESSION,
    SESSION_BYTES,
    to_session,
)
from services.storage.store.results import SessionCursor, SessionIdPage, SessionPage, UserVersion

_GET = Statement(f"SELECT {SESSION} FROM sessions AS s WHERE s.user_id = :user_id AND s.session_id = :session_id")


async def get_session(database: Database, user_id: str, session_id: str) -> Session:
    for row in await database.rows(_GET, {"user_id": user_id, "session_id": session_id}):
        return to_session(row)
    raise SessionNotFound(session_id)


async def find_session(connection: Connection, *, user_id: str, session_id: str) -> Session | None:
    row = await connection.row(_GET, {"user_id": user_id, "session_id": session_id})
    return None if row is None else to_session(row)


_VERSION = Statement("""
    SELECT CAST(coalesce(sum(revision), 0) AS bigint) AS revision, statement_timestamp() AS now
    FROM user_changes WHERE user_id = :user_id""")


async def user_version(database: Database, user_id: str) -> UserVersion:
    [row] = await database.rows(_VERSION, {"user_id": user_id})
    return UserVersion(revision=row.revision, now=row.now)


_ORDER = "s.update_time DESC, s.session_id"


def _after(after: SessionCursor | None) -> dict[str, object]:
    return {} if after is None else {"after_time": after.update_time, "after_id": after.session_id}


def _where(*, continued: bool) -> str:
    # The first condition is what the index can start from; the second cuts ties.
    beyond = "AND s.update_time <= :after_time AND (s.update_time < :after_time OR s.session_id > :after_id)"
    return f"s.user_id = :user_id {beyond if continued else ''}"


@cache
def _list_statement(*, full: bool, continued: bool) -> Statement:
    return Statement(f"""
        SELECT {SESSION if full else BASIC_SESSION}, s.pending_hitl_expire_time, s.fetched
        FROM (
            SELECT s.*, count(*) OVER () AS fetched, row_number() OVER (ORDER BY {_ORDER}) AS nth,
                sum({FULL_SESSION_BYTES if full else SESSION_BYTES})
                    OVER (ORDER BY {_ORDER} ROWS UNBOUNDED PRECEDING) AS bytes
            FROM (
                SELECT s.* FROM sessions AS s WHERE {_where(continued=continued)}
                ORDER BY {_ORDER} LIMIT CAST(:page_size AS bigint) + 1
            ) AS s
        ) AS s
        WHERE s.nth <= :page_size AND (s.nth = 1 OR s.bytes <= :max_bytes)
        ORDER BY {_ORDER}""")


async def list_sessions(
    database: Database, user_id: str, *, page_size: int, after: SessionCursor | None, full: bool, max_bytes: int
) -> SessionPage:
    rows = await database.rows(
        _list_statement(full=full, continued=after is not None),
        {"user_id": user_id, "page_size": page_size, "max_bytes": max_bytes, **_after(after)},
    )
    more = bool(rows) and rows[0].fetched > len(rows)
    return SessionPage(
        sessions=tuple(to_session(row) for row in rows),
        next=SessionCursor(rows[-1].update_time, rows[-1].session_id) if more else None,
        changes_time=min((row.pending_hitl_expire_time for row in rows if row.pending_hitl_task_id), default=None),
    )


@cache
def _list_ids_statement(*, continued: bool) -> Statement:
    return Statement(f"""
        SELECT s.session_id, s.update_time FROM sessions AS s WHERE {_where(continued=continued)}
        ORDER BY {_ORDER} LIMIT CAST(:page_size AS bigint) + 1""")


async def list_session_ids(
    database: Database, user_id: str, *, page_size: int, after: SessionCursor | None
) -> SessionIdPage:
    rows = await database.rows(
        _list_ids_statement(continued=after is not None),
        {"user_id": user_id, "page_size": page_size, **_after(after)},
    )
    page = rows[:page_size]
    return SessionIdPage(
        session_ids=tuple(row.session_id for row in page),
        next=SessionCursor(page[-1].update_time, page[-1].session_id) if len(rows) > page_size else None,
    )


_LOCK_COUNT = Statement("""
    SELECT session_id, message_count FROM sessions WHERE user_id = :user_id AND session_id = :session_id FOR UPDATE""")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSession:
    """`run_ids` are of the runs that went with it, whose events are to be forgotten once it is committed."""

    message_count: int
    run_ids: Sequence[str] = ()


async def delete_session(
    connection: Connection, user_id: str, session_id: str, *, record: RequestRecord | None
) -> DeletedSession:
    session = await connection.row(_LOCK_COUNT, {"user_id": user_id, "session_id": session_id})
    if record is not None:
        result = {"deleted_message_count": session.message_count if session else 0}
        # Bound to no session: what is left after the deletion is what a repeat is told.
        known = await record.claim(connection, session_id=None, result=result)
        if known is not None:
            return DeletedSession(message_count=int(known["deleted_message_count"]))
    if session is None:
        raise SessionNotFound(session_id)
    run_ids = await delete_sessions(connection, user_id=user_id, sessions=[session])
    return DeletedSession(message_count=session.message_count, run_ids=run_ids)
