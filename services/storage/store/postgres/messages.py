"""Reading and adding a session's messages."""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

from services.storage.errors import MessageNotFound, SessionNotFound
from services.storage.models import Message
from services.storage.store.base import CONTEXT_MAX_BYTES, MESSAGE_OVERHEAD_BYTES
from services.storage.store.postgres.database import Connection, Database, Row, Statement
from services.storage.store.postgres.rows import (
    MESSAGE,
    MESSAGE_BYTES,
    MESSAGE_NAMES,
    MESSAGE_WITH_TRACE_BYTES,
    MESSAGE_WITHOUT_TRACE,
    SESSION_WITHOUT_TEXTS,
    to_message,
    to_session,
)
from services.storage.store.results import LoadedSession, MessagePage

INSERT_MESSAGE = Statement("""
    INSERT INTO messages
        (user_id, session_id, position, message_id, type, status, content, create_time, run_id, trace, extra_json)
    VALUES
        (:user_id, :session_id, :position, :message_id, :type, :status, :content, :create_time, :run_id, :trace,
         :extra_json)""")


def insert_parameters(message: Message, *, user_id: str, session_id: str) -> dict[str, Any]:
    return {
        "user_id": user_id,
        "session_id": session_id,
        "position": message.position,
        "message_id": message.message_id,
        "type": message.type,
        "status": message.status,
        "content": message.content,
        "create_time": message.create_time,
        "run_id": message.run_id,
        "trace": message.trace,
        "extra_json": message.extra_json,
    }


def _page(*, where: str, descending: bool, include_traces: bool) -> str:
    """The first of the messages that fit :max_rows and :max_bytes, at least one; `fetched` tells of one more.

    Large values are carried through as references, and read for the rows that are returned alone.
    """
    order = "m.position DESC" if descending else "m.position"
    return f"""
        SELECT {MESSAGE if include_traces else MESSAGE_WITHOUT_TRACE}, m.fetched, m.nth
        FROM (
            SELECT m.*, count(*) OVER () AS fetched, row_number() OVER (ORDER BY {order}) AS nth,
                sum({MESSAGE_WITH_TRACE_BYTES if include_traces else MESSAGE_BYTES})
                    OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING) AS bytes
            FROM (
                SELECT m.* FROM messages AS m
                WHERE m.user_id = :user_id AND m.session_id = :session_id AND {where}
                ORDER BY {order} LIMIT CAST(:max_rows AS bigint) + 1
            ) AS m
        ) AS m
        WHERE m.nth <= :max_rows AND (m.nth = 1 OR m.bytes <= :max_bytes)"""


CONTEXT = _page(where="m.position < :before", descending=True, include_traces=False)
"""The newest messages before a position, the newest first; MESSAGE_NAMES reads them of a subquery."""

_CONTEXT = Statement(f"{CONTEXT} ORDER BY m.position")


async def read_context(
    connection: Connection, *, user_id: str, session_id: str, before: int, max_messages: int
) -> tuple[Sequence[Message], bool]:
    """The newest messages before a position, oldest first, and whether it was their bytes that left some out."""
    if not max_messages:
        return (), False
    rows = await connection.rows(
        _CONTEXT,
        {
            "user_id": user_id,
            "session_id": session_id,
            "before": before,
            "max_rows": max_messages,
            "max_bytes": CONTEXT_MAX_BYTES,
        },
    )
    messages = tuple(to_message(row) for row in rows)
    return messages, len(messages) < min(max_messages, before - 1)


_STEP = 1_000


def _far_load(*, include_traces: bool) -> str:
    """As `_page`, of however many messages: lengths are added up a step at a time, and texts read once they fit.

    Positions are 1, 2, 3 … as many as the session has messages.
    """
    size = MESSAGE_WITH_TRACE_BYTES if include_traces else MESSAGE_BYTES
    step = f"""
        FROM messages AS m
        WHERE m.user_id = :user_id AND m.session_id = :session_id
            AND m.position > r.after - {_STEP} AND m.position <= r.after"""
    return f"""
        WITH RECURSIVE reach AS (
            SELECT s.message_count AS newest, CAST(s.message_count AS bigint) AS after, CAST(0 AS bigint) AS bytes
            FROM sessions AS s WHERE s.user_id = :user_id AND s.session_id = :session_id
            UNION ALL
            SELECT r.newest, r.after - {_STEP}, r.bytes + step.bytes
            FROM reach AS r CROSS JOIN LATERAL (SELECT coalesce(sum({size}), 0) AS bytes {step}) AS step
            WHERE r.after > greatest(0, r.newest - :max_rows) AND r.bytes + step.bytes <= :max_bytes
        ), first AS (
            SELECT greatest(r.newest - :max_rows + 1, least(r.newest, coalesce((
                SELECT min(e.position)
                FROM (
                    SELECT m.position, r.bytes + sum({size}) OVER (ORDER BY m.position DESC) AS bytes {step}
                ) AS e
                WHERE e.bytes <= :max_bytes
            ), r.after + 1))) AS position
            FROM reach AS r ORDER BY r.after LIMIT 1
        )
        SELECT {SESSION_WITHOUT_TEXTS}, {MESSAGE if include_traces else MESSAGE_WITHOUT_TRACE},
            CASE WHEN coalesce(m.position = s.message_count, true) THEN s.note END AS note,
            CASE WHEN coalesce(m.position = s.message_count, true) THEN s.metadata END AS metadata
        FROM sessions AS s
        LEFT JOIN messages AS m
            ON m.user_id = s.user_id AND m.session_id = s.session_id
            AND m.position >= (SELECT first.position FROM first) AND m.position <= s.message_count
        WHERE s.user_id = :user_id AND s.session_id = :session_id
        ORDER BY m.position"""


@cache
def _load_statement(*, include_traces: bool, is_far: bool) -> Statement:
    # The note and the metadata may be large: they come once, with the newest message, which is the last row.
    if is_far:
        return Statement(_far_load(include_traces=include_traces))
    return Statement(f"""
        SELECT {SESSION_WITHOUT_TEXTS}, {MESSAGE_NAMES},
            CASE WHEN coalesce(m.nth, 1) = 1 THEN s.note END AS note,
            CASE WHEN coalesce(m.nth, 1) = 1 THEN s.metadata END AS metadata
        FROM sessions AS s
        LEFT JOIN LATERAL ({_page(where="true", descending=True, include_traces=include_traces)}) AS m ON true
        WHERE s.user_id = :user_id AND s.session_id = :session_id
        ORDER BY m.position""")


_READ_AT_ONCE = 1_000


async def load_session(
    database: Database, user_id: str, session_id: str, *, max_messages: int, include_traces: bool, max_bytes: int
) -> LoadedSession:
    # More messages than this can never fit: a history is not read through to find that out.
    most = max(1, max_bytes // MESSAGE_OVERHEAD_BYTES)
    max_rows = min(max_messages, most) if max_messages else most
    rows = await database.rows(
        _load_statement(include_traces=include_traces, is_far=max_rows > _STEP),
        {
            "user_id": user_id,
            "session_id": session_id,
            "max_rows": max_rows,
            "max_bytes": max_bytes,
        },
    )
    if not rows:
        raise SessionNotFound(session_id)
    session = to_session(rows[-1])
    messages: list[Message] = []
    for start in range(0, len(rows), _READ_AT_ONCE):
        messages += _messages_of(rows[start : start + _READ_AT_ONCE])
        if start:
            # A hundred thousand take most of a second, in which nobody else would be served.
            await asyncio.sleep(0)
    return LoadedSession(session=session, messages=messages, truncated=len(messages) < session.message_count)


@cache
def _list_statement(*, descending: bool, include_traces: bool) -> Statement:
    where = "m.position < :after" if descending else "m.position > :after"
    return Statement(f"""
        SELECT s.revision, {MESSAGE_NAMES}, m.fetched
        FROM sessions AS s
        LEFT JOIN LATERAL ({_page(where=where, descending=descending, include_traces=include_traces)}) AS m ON true
        WHERE s.user_id = :user_id AND s.session_id = :session_id
        ORDER BY m.position {"DESC" if descending else ""}""")


_BEYOND_ALL = 2**63 - 1


async def list_messages(
    database: Database,
    user_id: str,
    session_id: str,
    *,
    page_size: int,
    after: int | None,
    descending: bool,
    include_traces: bool,
    max_bytes: int,
) -> MessagePage:
    if after is None:
        after = _BEYOND_ALL if descending else 0
    rows = await database.rows(
        _list_statement(descending=descending, include_traces=include_traces),
        {
            "user_id": user_id,
            "session_id": session_id,
            "after": after,
            "max_rows": page_size,
            "max_bytes": max_bytes,
        },
    )
    if not rows:
        raise SessionNotFound(session_id)
    messages = _messages_of(rows)
    more = bool(messages) and rows[0].fetched > len(messages)
    return MessagePage(messages=messages, next=messages[-1].position if more else None, revision=rows[0].revision)


_GET = Statement(f"""
    SELECT {MESSAGE}
    FROM sessions AS s
    LEFT JOIN messages AS m
        ON m.user_id = s.user_id AND m.session_id = s.session_id AND m.message_id = :message_id
    WHERE s.user_id = :user_id AND s.session_id = :session_id""")


async def get_message(database: Database, user_id: str, session_id: str, message_id: str) -> Message:
    rows = await database.rows(_GET, {"user_id": user_id, "session_id": session_id, "message_id": message_id})
    if not rows:
        raise SessionNotFound(session_id)
    for message in _messages_of(rows):
        return message
    raise MessageNotFound(message_id)


async def find_message(connection: Connection, *, user_id: str, session_id: str, message_id: str) -> Message | None:
    names = {"user_id": user_id, "session_id": session_id, "message_id": message_id}
    row = await connection.row(_GET, names)
    return None if row is None or row.position is None else to_message(row)


def _messages_of(rows: Sequence[Row]) -> tuple[Message, ...]:
    """An outer join's messages: a session without any comes as one row of nulls."""
    return tuple(to_message(row) for row in rows if row["position"] is not None)
