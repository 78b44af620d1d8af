"""Replacing a session's whole history, in the transaction of a connection.

What stays as it is is not written: the history is compared where it lies, and each step takes a statement, or a
few where so much changes that one would outrun its limit.
"""

from collections.abc import Iterator, Sequence

from services.storage.models import MessageStatus, NewMessage, Session
from services.storage.store.commands import SaveSession
from services.storage.store.postgres.database import Connection, Statement
from services.storage.store.postgres.guards import TryAgain, check_free, check_revision
from services.storage.store.postgres.history import cancel_unasked, change_session
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.new_messages import NEW_MESSAGES, check_ids, new_messages
from services.storage.store.postgres.requests import RequestRecord, session_of
from services.storage.store.postgres.session_lock import LockedSession, lock_or_create
from services.storage.store.postgres.sessions import find_session


async def save_session(connection: Connection, request: SaveSession, *, record: RequestRecord | None) -> Session:
    """Raises TryAgain and ExpiredRunFound too."""
    check_ids(request.messages)
    names = {"user_id": request.user_id, "session_id": request.session_id}
    if record is not None:
        # Before anything else: a late repeat must not bring a deleted session back.
        known = await record.find(connection)
        if known is not None:
            return session_of(known, await find_session(connection, **names), session_id=request.session_id)
    locked = await lock_or_create(connection, **names)
    if record is not None:
        known = await record.claim(connection, session_id=request.session_id, result={"uid": locked.uid})
        if known is not None:
            # It has taken effect while this waited for the lock.
            raise TryAgain
    check_revision(request.expected_revision, actual=locked.revision)
    check_free(locked.active_run_id, lease_expired=locked.active_expired, session_id=request.session_id)
    moves_runs = await _replace(connection, locked, request.messages)
    # Before the runs forget which messages were theirs.
    cancels = await cancel_unasked(connection, locked)
    if moves_runs:
        await connection.execute(_MOVE_RUNS, names)
    return await change_session(
        connection, locked, count=len(request.messages), cancels=cancels, metadata=request.metadata
    )


_AT_ONCE = 20_000
"""Messages that one statement takes at most."""

# The planner knows neither how many messages come in nor how many there are, and takes both for few: joined in
# nested loops, a long history would cost its square.
_PREPARE = Statement("SELECT statement_timestamp() AS now, set_config('enable_nestloop', 'off', true)")

# What is NULL or "" in the request is not compared: it stays as it is.
_IS_CHANGED = """
    coalesce(m.type <> n.type OR m.content <> n.content OR m.extra_json <> n.extra_json OR m.status <> n.status
        OR m.create_time <> n.create_time OR coalesce(m.trace <> n.trace, n.trace IS NOT NULL)
        OR m.run_id <> nullif(n.run_id, ''), false)"""

_COMPARE = Statement(f"""
    SELECT n.nth, m.message_id IS NULL AS is_new, m.position <> n.nth AS is_moved, {_IS_CHANGED} AS is_changed
    FROM {NEW_MESSAGES}
    LEFT JOIN messages AS m
        ON m.user_id = :user_id AND m.session_id = :session_id AND m.message_id = n.message_id
    WHERE m.message_id IS NULL OR m.position <> n.nth OR {_IS_CHANGED}
    ORDER BY n.nth""")


async def _replace(connection: Connection, session: LockedSession, messages: Sequence[NewMessage]) -> bool:
    """Whether any message that was there is gone, or has another position."""
    names = {"user_id": session.user_id, "session_id": session.session_id}
    now = await connection.value(_PREPARE, {})
    new, moved, changed = list[int](), list[int](), list[int]()
    for some in _slices(range(len(messages))):
        columns = new_messages([messages[index] for index in some], nths=[index + 1 for index in some])
        rows = await connection.rows(_COMPARE, {**names, **columns})
        new += [row.nth - 1 for row in rows if row.is_new]
        moved += [row.nth - 1 for row in rows if row.is_moved]
        changed += [row.nth - 1 for row in rows if row.is_changed]
    has_gone = len(messages) - len(new) < session.message_count
    if has_gone:
        kept = [message.message_id for message in messages if message.message_id]
        await connection.execute(_DELETE_OTHERS, {**names, "kept_ids": kept})
    for some in _slices(changed):
        await connection.execute(_CHANGE, {**names, **new_messages([messages[index] for index in some])})
    await _move(connection, session, messages, moved)
    for some in _slices(new):
        added = [messages[index] for index in some]
        made_ids = [new_id() for message in added if not message.message_id]
        columns = new_messages(added, made_ids=made_ids, nths=[index + 1 for index in some])
        await connection.execute(_ADD, {**names, **columns, "now": now})
    return bool(moved) or has_gone


def _slices(indexes: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(indexes), _AT_ONCE):
        yield indexes[start : start + _AT_ONCE]


# Without nested loops this is hashed, on disk too; NOT IN would be looked through where its list outgrows work_mem.
_DELETE_OTHERS = Statement("""
    DELETE FROM messages AS m
    WHERE m.user_id = :user_id AND m.session_id = :session_id
        AND NOT EXISTS (
            SELECT FROM unnest(CAST(:kept_ids AS text[])) AS k (message_id) WHERE k.message_id = m.message_id
        )""")

_CHANGE = Statement(f"""
    UPDATE messages AS m
    SET type = n.type, content = n.content, extra_json = n.extra_json, status = coalesce(n.status, m.status),
        create_time = coalesce(n.create_time, m.create_time), trace = coalesce(n.trace, m.trace),
        run_id = coalesce(nullif(n.run_id, ''), m.run_id)
    FROM {NEW_MESSAGES}
    WHERE m.user_id = :user_id AND m.session_id = :session_id AND m.message_id = n.message_id""")

_ADD = Statement(f"""
    INSERT INTO messages
        (user_id, session_id, position, message_id, type, status, content, create_time, run_id, trace, extra_json)
    SELECT :user_id, :session_id, n.nth, n.message_id, n.type, coalesce(n.status, {MessageStatus.COMPLETE}), n.content,
        coalesce(n.create_time, CAST(:now AS timestamptz)), n.run_id, n.trace, n.extra_json
    FROM {NEW_MESSAGES}""")

_MOVE_AWAY = Statement("""
    UPDATE messages AS m SET position = n.position + CAST(:beyond AS bigint)
    FROM unnest(CAST(:message_ids AS text[]), CAST(:positions AS bigint[])) AS n (message_id, position)
    WHERE m.user_id = :user_id AND m.session_id = :session_id AND m.message_id = n.message_id""")

_MOVE_BACK = Statement("""
    UPDATE messages AS m SET position = m.position - CAST(:beyond AS bigint)
    WHERE m.user_id = :user_id AND m.session_id = :session_id AND m.position > :after AND m.position <= :through""")


async def _move(
    connection: Connection, session: LockedSession, messages: Sequence[NewMessage], moved: Sequence[int]
) -> None:
    """In two steps, by way of positions that nobody has: no two messages ever meet at one."""
    beyond = max(session.message_count, len(messages))
    names = {"user_id": session.user_id, "session_id": session.session_id, "beyond": beyond}
    for some in _slices(moved):
        places = {"message_ids": [messages[index].message_id for index in some], "positions": [i + 1 for i in some]}
        await connection.execute(_MOVE_AWAY, {**names, **places})
    for some in _slices(moved):
        # They come in order of their places.
        within = {"after": beyond + some[0], "through": beyond + some[-1] + 1}
        await connection.execute(_MOVE_BACK, {**names, **within})


# A position that is used again is another message's.
_MOVE_RUNS = Statement("""
    UPDATE runs AS r
    SET human_position = coalesce(o.human_position, 0), ai_position = coalesce(o.ai_position, 0),
        human_message_id = coalesce(o.human_message_id, ''), ai_message_id = coalesce(o.ai_message_id, '')
    FROM (
        SELECT o.run_id, h.position AS human_position, h.message_id AS human_message_id, a.position AS ai_position,
            a.message_id AS ai_message_id
        FROM runs AS o
        LEFT JOIN messages AS h
            ON h.user_id = :user_id AND h.session_id = :session_id AND h.message_id = o.human_message_id
        LEFT JOIN messages AS a
            ON a.user_id = :user_id AND a.session_id = :session_id AND a.message_id = o.ai_message_id
        WHERE o.user_id = :user_id AND o.session_id = :session_id
    ) AS o
    WHERE r.user_id = :user_id AND r.run_id = o.run_id
        AND (r.human_position <> coalesce(o.human_position, 0) OR r.ai_position <> coalesce(o.ai_position, 0))""")
