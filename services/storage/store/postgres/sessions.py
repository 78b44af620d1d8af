"""Reading, listing and deleting sessions."""

from functools import cache

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.storage.errors import SessionNotFound
from services.storage.models import Session
from services.storage.store.base import SessionCursor, SessionIdPage, SessionPage
from services.storage.store.postgres.changes import CHANGED, bucket
from services.storage.store.postgres.database import Database
from services.storage.store.postgres.requests import FORGET_SESSION, RequestRecord
from services.storage.store.postgres.rows import (
    BASIC_SESSION,
    FULL_SESSION_BYTES,
    SESSION,
    SESSION_BYTES,
    to_session,
)

_GET = text(f"SELECT {SESSION} FROM sessions AS s WHERE s.user_id = :user_id AND s.session_id = :session_id")


async def get_session(database: Database, user_id: str, session_id: str) -> Session:
    for row in await database.statement(_GET, {"user_id": user_id, "session_id": session_id}):
        return to_session(row)
    raise SessionNotFound(session_id)


_ORDER = "s.update_time DESC, s.session_id"


def _after(after: SessionCursor | None) -> dict[str, object]:
    return {} if after is None else {"after_time": after.update_time, "after_id": after.session_id}


def _where(*, continued: bool) -> str:
    # The first condition is what the index can start from; the second cuts ties.
    beyond = "AND s.update_time <= :after_time AND (s.update_time < :after_time OR s.session_id > :after_id)"
    return f"s.user_id = :user_id {beyond if continued else ''}"


@cache
def _list_statement(*, full: bool, continued: bool) -> TextClause:
    return text(f"""
        SELECT {SESSION if full else BASIC_SESSION}, s.fetched
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
    rows = await database.statement(
        _list_statement(full=full, continued=after is not None),
        {"user_id": user_id, "page_size": page_size, "max_bytes": max_bytes, **_after(after)},
    )
    more = bool(rows) and rows[0].fetched > len(rows)
    return SessionPage(
        sessions=tuple(to_session(row) for row in rows),
        next=SessionCursor(rows[-1].update_time, rows[-1].session_id) if more else None,
    )


@cache
def _list_ids_statement(*, continued: bool) -> TextClause:
    return text(f"""
        SELECT s.session_id, s.update_time FROM sessions AS s WHERE {_where(continued=continued)}
        ORDER BY {_ORDER} LIMIT CAST(:page_size AS bigint) + 1""")


async def list_session_ids(
    database: Database, user_id: str, *, page_size: int, after: SessionCursor | None
) -> SessionIdPage:
    rows = await database.statement(
        _list_ids_statement(continued=after is not None),
        {"user_id": user_id, "page_size": page_size, **_after(after)},
    )
    page = rows[:page_size]
    return SessionIdPage(
        session_ids=tuple(row.session_id for row in page),
        next=SessionCursor(page[-1].update_time, page[-1].session_id) if len(rows) > page_size else None,
    )


_LOCK_COUNT = text("""
    SELECT message_count FROM sessions WHERE user_id = :user_id AND session_id = :session_id FOR UPDATE""")

_DELETE = text("DELETE FROM sessions WHERE user_id = :user_id AND session_id = :session_id")

# By itself, after the messages have gone with their session, of which there may be many.
_CHANGED = text(CHANGED)


async def delete_session(
    connection: AsyncConnection, user_id: str, session_id: str, *, record: RequestRecord | None
) -> int:
    names = {"user_id": user_id, "session_id": session_id}
    count = (await connection.execute(_LOCK_COUNT, names)).scalar_one_or_none()
    if record is not None:
        result = {"deleted_message_count": count}
        # Bound to no session: what is left after the deletion is what a repeat is told.
        known = await record.claim(connection, session_id=None, result=result)
        if known is not None:
            return int(known["deleted_message_count"])
    if count is None:
        raise SessionNotFound(session_id)
    await connection.execute(FORGET_SESSION, names)
    await connection.execute(_DELETE, names)
    await connection.execute(_CHANGED, {"user_id": user_id, "bucket": bucket(session_id)})
    return int(count)
