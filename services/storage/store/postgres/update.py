"""Changing what a session has beside its messages: one statement, whoever else writes at the same time."""

from functools import cache
from typing import Any

from services.storage.errors import SessionNotFound
from services.storage.models import Session
from services.storage.store.commands import UpdateSession
from services.storage.store.postgres.changes import SESSION_CHANGED, bucket
from services.storage.store.postgres.database import Connection, Database, Row, Statement
from services.storage.store.postgres.failures import UNIQUE_VIOLATION, StatementFault
from services.storage.store.postgres.guards import TryAgain, check_revision
from services.storage.store.postgres.metadata import MERGED_METADATA, check_merged, merge_parameters
from services.storage.store.postgres.requests import (
    FOUND_RECORD,
    SESSION_AND_RECORD,
    RequestRecord,
    record_of,
    record_parameters,
    session_of,
)
from services.storage.store.postgres.rows import SESSION, to_session

# A note that nobody has said the reach of replaces its like.
# It cannot take in what was never said: a position past the end would shut out every later note.
_THROUGH = "least(CAST(:note_through_position AS bigint), s.message_count)"
_TAKES_NOTE = f"""
    CAST(:sets_note AS boolean)
        AND ({_THROUGH} > s.note_through_position OR ({_THROUGH} = 0 AND s.note_through_position = 0))"""


@cache
def _update_statement(*, recorded: bool, changes: bool) -> Statement:
    # The counter is the last to be carried out, as in an append.
    return Statement(f"""
        WITH the_session AS (
            UPDATE sessions AS s
            SET title = CASE WHEN CAST(:sets_title AS boolean) THEN :title ELSE s.title END,
                note = CASE WHEN {_TAKES_NOTE} THEN :note ELSE s.note END,
                note_through_position = CASE WHEN {_TAKES_NOTE}
                    THEN {_THROUGH} ELSE s.note_through_position END,
                expire_time = CASE WHEN CAST(:sets_expire_time AS boolean)
                    THEN CAST(:expire_time AS timestamptz) ELSE s.expire_time END,
                metadata = {MERGED_METADATA},
                revision = s.revision + CASE WHEN CAST(:moves AS boolean) THEN 1 ELSE 0 END,
                update_time = CASE WHEN CAST(:moves AS boolean) THEN clock_timestamp() ELSE s.update_time END
            WHERE s.user_id = :user_id AND s.session_id = :session_id
                AND s.revision = coalesce(CAST(:expected_revision AS bigint), s.revision)
            RETURNING {SESSION}
        )
        {f", the_change AS ({SESSION_CHANGED})" if changes else ""}
        {f", the_request AS ({record_of()})" if recorded else ""}
        SELECT * FROM the_session""")


async def update_session(database: Database, request: UpdateSession, *, record: RequestRecord | None) -> Session:
    """Raises TryAgain too."""
    moves = request.title is not None or request.sets_expire_time or request.metadata is not None
    statement = _update_statement(recorded=record is not None, changes=moves or request.note is not None)
    parameters = {
        "user_id": request.user_id,
        "session_id": request.session_id,
        "bucket": bucket(request.session_id),
        "expected_revision": request.expected_revision,
        "moves": moves,
        "sets_title": request.title is not None,
        "title": request.title or "",
        "sets_note": request.note is not None,
        "note": request.note or "",
        "note_through_position": request.note_through_position,
        "sets_expire_time": request.sets_expire_time,
        "expire_time": request.expire_time,
        **merge_parameters(request.metadata or {}),
        **record_parameters(record),
    }
    try:
        row = await _update(database, request, statement, parameters)
    except StatementFault as fault:
        if fault.sqlstate != UNIQUE_VIOLATION:
            raise
        row = None
    if row is not None:
        return to_session(row)
    return await _look_why(database, request, record=record)


async def _update(
    database: Database, request: UpdateSession, statement: Statement, parameters: dict[str, Any]
) -> Row | None:
    if not request.metadata:
        return next(iter(await database.rows(statement, parameters)), None)
    changes = request.metadata

    async def merge(connection: Connection) -> Row | None:
        row = await connection.row(statement, parameters)
        if row is not None:
            check_merged(to_session(row), changes)
        return row

    return await database.transaction(merge)


_LOOK = Statement(f"SELECT {FOUND_RECORD}, {SESSION} FROM {SESSION_AND_RECORD}")


async def _look_why(database: Database, request: UpdateSession, *, record: RequestRecord | None) -> Session:
    """Why nothing was changed: an error, or the first result, which this repeats."""
    names = {"user_id": request.user_id, "session_id": request.session_id}
    [found] = await database.rows(_LOOK, {**names, **record_parameters(record)})
    if record is not None:
        result = await record.recall(database, found)
        if result is not None:
            return session_of(result, to_session(found) if found.uid else None, session_id=request.session_id)
    if found.uid is None:
        raise SessionNotFound(request.session_id)
    check_revision(request.expected_revision, actual=found.revision)
    raise TryAgain
