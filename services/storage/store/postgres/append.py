"""Adding messages to a session's end: one statement, which commits by itself.

Every value of it comes from the session's row, which it locks: it is right however many write at once. What
else could have stood in its way is looked at only once it was refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from services.storage.errors import MessageIdExists
from services.storage.models import Message, MessageStatus, NewMessage
from services.storage.store.commands import AppendMessages
from services.storage.store.postgres.changes import SESSION_CHANGED, bucket
from services.storage.store.postgres.database import Database, Statement
from services.storage.store.postgres.failures import UNIQUE_VIOLATION, StatementFault
from services.storage.store.postgres.guards import HOLDING_RUN, LEASE_EXPIRED, TryAgain, check_free, check_revision
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.new_messages import NEW_MESSAGES, check_ids, new_messages
from services.storage.store.postgres.requests import (
    FOUND_RECORD,
    SESSION_AND_RECORD,
    RequestRecord,
    record_of,
    record_parameters,
    session_of,
)
from services.storage.store.postgres.rows import SESSION, to_session
from services.storage.store.results import AppendedMessages

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CREATE = """
    INSERT INTO sessions AS s (user_id, session_id, uid, revision, message_count, create_time, update_time)
    VALUES (:user_id, :session_id, :uid, 1, :count, statement_timestamp(), statement_timestamp())
    ON CONFLICT (user_id, session_id)"""

# The clock is read once the row is locked: a session's times follow its revisions.
_GROW = """
    SET revision = s.revision + 1, message_count = s.message_count + CAST(:count AS bigint),
        update_time = clock_timestamp()"""

_TAKES = {
    "any": f"{_CREATE} DO UPDATE {_GROW} WHERE s.active_run_id = ''",
    "none": f"{_CREATE} DO NOTHING",
    "one": f"""
        UPDATE sessions AS s {_GROW}
        WHERE s.user_id = :user_id AND s.session_id = :session_id AND s.revision = :expected_revision
            AND s.active_run_id = ''""",
}
"""By which session is expected: any or none yet, none, or one of that revision."""

_RESULT = """
    jsonb_build_object('uid', s.uid, 'position', s.message_count - CAST(:count AS bigint) + 1,
        'time', CAST(extract(epoch FROM s.update_time) * 1000000 AS bigint), 'made_ids', CAST(:made_ids AS text[]))"""


@cache
def _append_statement(*, expects: str, recorded: bool) -> Statement:
    # What is written in a WITH and read nowhere is carried out from the last to the first, after the rest: the
    # request before the messages, so that a repeat is known as one, and the change counter at the very end.
    return Statement(f"""
        WITH the_session AS ({_TAKES[expects]} RETURNING {SESSION}),
        the_change AS ({SESSION_CHANGED}),
        the_messages AS (
            INSERT INTO messages
                (user_id, session_id, position, message_id, type, status, content, create_time, run_id, trace,
                 extra_json)
            SELECT s.user_id, s.session_id, s.message_count - CAST(:count AS bigint) + n.nth, n.message_id, n.type,
                coalesce(n.status, {MessageStatus.COMPLETE}), n.content, coalesce(n.create_time, s.update_time),
                n.run_id, n.trace, n.extra_json
            FROM the_session AS s, {NEW_MESSAGES}
        ){f", the_request AS ({record_of(_RESULT)})" if recorded else ""}
        SELECT * FROM the_session""")


async def append_messages(
    database: Database, request: AppendMessages, *, record: RequestRecord | None
) -> AppendedMessages:
    """Raises TryAgain and ExpiredRunFound too."""
    check_ids(request.messages)
    made_ids = [new_id() for message in request.messages if not message.message_id]
    expects = {None: "any", 0: "none"}.get(request.expected_revision, "one")
    parameters = {
        "user_id": request.user_id,
        "session_id": request.session_id,
        **new_messages(request.messages, made_ids=made_ids),
        "uid": new_id(),
        "count": len(request.messages),
        "bucket": bucket(request.session_id),
        "expected_revision": request.expected_revision,
        "made_ids": made_ids,
        **record_parameters(record),
    }
    try:
        rows = await database.rows(_append_statement(expects=expects, recorded=record is not None), parameters)
    except StatementFault as fault:
        if fault.sqlstate != UNIQUE_VIOLATION:
            raise
        rows = []
    for row in rows:
        first = _Stored(position=row.message_count - len(request.messages) + 1, time=row.update_time, made_ids=made_ids)
        return AppendedMessages(session=to_session(row), messages=first.messages(request.messages))
    return await _look_why(database, request, record=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """What the store added to the messages of a request: with these they are what is stored."""

    position: int
    time: datetime
    made_ids: Sequence[str]

    @classmethod
    def recalled(cls, result: Mapping[str, Any]) -> "_Stored":
        return cls(
            position=result["position"],
            time=_EPOCH + timedelta(microseconds=result["time"]),
            made_ids=result["made_ids"],
        )

    def messages(self, messages: Sequence[NewMessage]) -> tuple[Message, ...]:
        made = iter(self.made_ids)
        return tuple(
            Message(
                position=position,
                message_id=message.message_id or next(made),
                type=message.type,
                status=message.status or MessageStatus.COMPLETE,
                content=message.content,
                create_time=message.create_time or self.time,
                run_id=message.run_id,
                trace=message.trace,
                extra_json=message.extra_json,
            )
            for position, message in enumerate(messages, self.position)
        )


# The record may be of another session, or of none any more.
_LOOK = Statement(f"""
    SELECT {FOUND_RECORD}, {SESSION}, {LEASE_EXPIRED} AS lease_expired, (
            SELECT m.message_id FROM messages AS m
            WHERE m.user_id = s.user_id AND m.session_id = s.session_id AND m.message_id = ANY(:message_ids)
            ORDER BY m.position LIMIT 1
        ) AS existing_id
    FROM {SESSION_AND_RECORD} {HOLDING_RUN}""")


async def _look_why(database: Database, request: AppendMessages, *, record: RequestRecord | None) -> AppendedMessages:
    """Why nothing was stored: an error, or the first result, which this repeats."""
    [found] = await database.rows(
        _LOOK,
        {
            "user_id": request.user_id,
            "session_id": request.session_id,
            "message_ids": [message.message_id for message in request.messages if message.message_id],
            **record_parameters(record),
        },
    )
    if record is not None:
        result = await record.recall(database, found)
        if result is not None:
            session = session_of(result, to_session(found) if found.uid else None, session_id=request.session_id)
            stored = _Stored.recalled(result)
            return AppendedMessages(session=session, messages=stored.messages(request.messages), is_repeat=True)
    check_revision(request.expected_revision, actual=found.revision)
    check_free(found.active_run_id, lease_expired=found.lease_expired, session_id=request.session_id)
    if found.existing_id is not None:
        raise MessageIdExists(found.existing_id)
    raise TryAgain
