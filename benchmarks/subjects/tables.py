"""The plain tables beneath the bare handler, the raw driver and the way of rewriting.

Their columns and keys are those that a stored message needs in the service too, without what makes its writes
safe to repeat.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import asyncpg

from benchmarks.material import Place, SessionSet, Turn, turn
from benchmarks.subjects.base import CONNECTIONS

HUMAN, AI = 1, 2

EncodedTrace = Callable[[int], bytes]

_CREATE = """
CREATE TABLE sessions (
    user_id       text COLLATE "C" NOT NULL,
    session_id    text COLLATE "C" NOT NULL,
    revision      bigint NOT NULL DEFAULT 1,
    message_count bigint NOT NULL,
    update_time   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, session_id)
);
CREATE TABLE messages (
    user_id     text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    position    bigint NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    type        smallint NOT NULL,
    content     text NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),
    trace       bytea,
    PRIMARY KEY (user_id, session_id, position),
    UNIQUE (user_id, session_id, message_id),
    FOREIGN KEY (user_id, session_id) REFERENCES sessions ON DELETE CASCADE
);
"""
_COMPRESSED = "ALTER TABLE messages ALTER COLUMN trace SET COMPRESSION lz4"

APPEND = """
WITH changed AS (
    UPDATE sessions SET revision = revision + 1, message_count = message_count + cardinality($3::text[]),
        update_time = now()
    WHERE user_id = $1 AND session_id = $2
    RETURNING message_count - cardinality($3::text[]) AS before
)
INSERT INTO messages (user_id, session_id, position, message_id, type, content, trace)
SELECT $1, $2, changed.before + given.n, given.message_id, given.type, given.content, given.trace
FROM changed, unnest($3::text[], $4::smallint[], $5::text[], $6::bytea[])
    WITH ORDINALITY AS given (message_id, type, content, trace, n)
RETURNING position
"""
REVISION = "SELECT revision FROM sessions WHERE user_id = $1 AND session_id = $2"
NEWEST = """
SELECT position, message_id, type, content, create_time, trace FROM messages
WHERE user_id = $1 AND session_id = $2 ORDER BY position DESC LIMIT $3
"""
PAGE = """
SELECT position, message_id, type, content, create_time, trace FROM messages
WHERE user_id = $1 AND session_id = $2 AND position > $3 ORDER BY position LIMIT $4
"""
WHOLE = """
SELECT position, message_id, type, content, create_time, trace FROM messages
WHERE user_id = $1 AND session_id = $2 ORDER BY position
"""
MESSAGE_COLUMNS = ("user_id", "session_id", "position", "message_id", "type", "content", "create_time", "trace")


async def open_pool(database_url: str) -> asyncpg.Pool:
    return await asyncpg.create_pool(database_url, min_size=CONNECTIONS, max_size=CONNECTIONS)


async def create_tables(pool: asyncpg.Pool) -> None:
    """Without effect where they are."""
    async with pool.acquire() as connection:
        if await connection.fetchval("SELECT to_regclass('messages') IS NOT NULL"):
            return
        await connection.execute(_CREATE)
        methods = await connection.fetchval("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")
        if "lz4" in (methods or ()):
            await connection.execute(_COMPRESSED)


async def fill(pool: asyncpg.Pool, sessions: SessionSet, *, trace: EncodedTrace | None = None) -> None:
    """`trace` gives the bytes of a turn's trace, by its number; JSON unless said otherwise."""
    async with pool.acquire() as connection:
        for session, place in enumerate(sessions.places()):
            async with connection.transaction():
                await connection.execute(
                    "INSERT INTO sessions (user_id, session_id, message_count) VALUES ($1, $2, $3)",
                    *place,
                    sessions.messages,
                )
                await copy_messages(connection, place, sessions.turns(session), trace=trace)


async def copy_messages(
    connection: asyncpg.Connection, place: Place, turns: Sequence[Turn], *, trace: EncodedTrace | None = None
) -> None:
    records = _rows(place, turns, trace or encoded_trace)
    await connection.copy_records_to_table("messages", records=records, columns=MESSAGE_COLUMNS)


def _rows(place: Place, turns: Sequence[Turn], trace: EncodedTrace) -> list[tuple[Any, ...]]:
    now = datetime.now(UTC)
    found: list[tuple[Any, ...]] = []
    for each in turns:
        position = len(found) + 1
        found.append((*place, position, f"m-{position}", HUMAN, each.human, now, None))
        found.append((*place, position + 1, f"m-{position + 1}", AI, each.ai, now, trace(each.number)))
    return found


@cache
def encoded_trace(number: int) -> bytes:
    """The trace of a turn of the stock, as JSON."""
    return json.dumps(turn(number).trace, separators=(",", ":")).encode()
