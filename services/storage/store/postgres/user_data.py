"""Deleting all that is kept of a user, in batches."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from services.storage.store.postgres.database import Connection, Database, Row, Statement
from services.storage.store.postgres.deletion import ROWS, delete_sessions
from services.storage.store.postgres.requests import RequestRecord
from services.storage.store.unbroken import UnbrokenWork

_PAGE = 1_000

_NOW = Statement("SELECT statement_timestamp() AS now")

# What comes into being while the call is under way is none that its caller knew of.
_LIST = Statement(f"""
    SELECT session_id, message_count FROM sessions
    WHERE user_id = :user_id AND session_id > :after AND create_time <= :began
    ORDER BY session_id LIMIT {_PAGE}""")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBatch:
    """`run_ids` are of the runs that went with the sessions."""

    session_ids: Sequence[str]
    run_ids: Sequence[str]


async def delete_user_data(
    database: Database,
    user_id: str,
    *,
    record: RequestRecord | None,
    unbroken: UnbrokenWork,
    tell: Callable[[DeletedBatch], Awaitable[None]],
) -> int:
    """`tell` is called for each batch once that is committed, whatever has become of the caller."""
    began = await database.transaction(partial(_begin, record=record))
    if isinstance(began, int):
        return began
    count = 0
    async for session_ids in _batches(database, user_id, began=began):
        deletion = partial(_delete_batch, user_id=user_id, session_ids=session_ids, began=began)
        count += await unbroken.run(_delete_and_tell(database, deletion, tell=tell))
    return await database.transaction(partial(_end, user_id=user_id, record=record, count=count))


async def _delete_and_tell(
    database: Database,
    deletion: Callable[[Connection], Awaitable[DeletedBatch]],
    *,
    tell: Callable[[DeletedBatch], Awaitable[None]],
) -> int:
    deleted = await database.transaction(deletion)
    await tell(deleted)
    return len(deleted.session_ids)


async def _begin(connection: Connection, *, record: RequestRecord | None) -> datetime | int:
    """The time; or what the request had deleted, where it is a repeat."""
    if record is not None:
        known = await record.find(connection)
        if known is not None:
            return _count(known)
    now: datetime = await connection.value(_NOW, {})
    return now


async def _batches(database: Database, user_id: str, *, began: datetime) -> AsyncIterator[Sequence[str]]:
    """Ids of sessions that hold so many rows together; one that holds more is alone, to go as one."""
    after, batch, rows = "", list[str](), 0
    while page := await database.rows(_LIST, {"user_id": user_id, "after": after, "began": began}):
        for session in page:
            # With at most a run to each message.
            size = 2 * session.message_count + 1
            if batch and rows + size > ROWS:
                yield batch
                batch, rows = [], 0
            batch.append(session.session_id)
            rows += size
        after = page[-1].session_id
    if batch:
        yield batch


# In order, so that two such calls do not wait for each other.
_LOCK = Statement("""
    SELECT session_id, message_count FROM sessions
    WHERE user_id = :user_id AND session_id = ANY(:session_ids) AND create_time <= :began
    ORDER BY session_id FOR UPDATE""")


async def _delete_batch(
    connection: Connection, *, user_id: str, session_ids: Sequence[str], began: datetime
) -> DeletedBatch:
    locked: Sequence[Row] = await connection.rows(
        _LOCK, {"user_id": user_id, "session_ids": session_ids, "began": began}
    )
    if not locked:
        return DeletedBatch(session_ids=(), run_ids=())
    run_ids = await delete_sessions(connection, user_id=user_id, sessions=locked)
    return DeletedBatch(session_ids=[session.session_id for session in locked], run_ids=run_ids)


_LOCK_COUNTERS = Statement("SELECT 1 FROM user_changes WHERE user_id = :user_id ORDER BY bucket FOR UPDATE")

# A sum of no counters stands for no sessions: those of a user who has begun anew stay.
_DELETE_COUNTERS = Statement("""
    DELETE FROM user_changes
    WHERE user_id = :user_id AND NOT EXISTS (SELECT 1 FROM sessions WHERE user_id = :user_id)""")


async def _end(connection: Connection, *, user_id: str, record: RequestRecord | None, count: int) -> int:
    if record is not None:
        known = await record.claim(connection, session_id=None, result={"deleted_session_count": count})
        if known is not None:
            return _count(known)
    # Locked first: whoever makes a session has it by then, or has to make a counter for it.
    await connection.execute(_LOCK_COUNTERS, {"user_id": user_id})
    await connection.execute(_DELETE_COUNTERS, {"user_id": user_id})
    return count


def _count(result: dict[str, Any]) -> int:
    return int(result["deleted_session_count"])
