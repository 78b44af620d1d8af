"""Beginning a run, in the transaction of a connection."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache

from services.storage.models import (
    ConflictPolicy,
    HitlTask,
    Message,
    MessageStatus,
    MessageType,
    Run,
    RunStatus,
)
from services.storage.store.base import CONTEXT_MAX_BYTES
from services.storage.store.commands import BeginRun
from services.storage.store.postgres.changes import CHANGED, bucket
from services.storage.store.postgres.claim import check_named_question, claim_again, take_question
from services.storage.store.postgres.database import Connection, Statement
from services.storage.store.postgres.guards import check_free
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.messages import CONTEXT
from services.storage.store.postgres.repeat import begun_before
from services.storage.store.postgres.requests import RequestRecord
from services.storage.store.postgres.rows import MESSAGE_NAMES, SESSION_WITHOUT_TEXTS, to_message, to_session
from services.storage.store.postgres.session_lock import LockedSession, lock_or_create
from services.storage.store.postgres.take_back import take_back_replaced, take_over_retried
from services.storage.store.results import BegunRun


async def begin_run(connection: Connection, request: BeginRun, *, record: RequestRecord | None) -> BegunRun:
    """Begins at once, or not at all. Raises ExpiredRunFound too."""
    run_id = new_id()
    session_id = request.session_id or new_id()
    if record is not None:
        # Before anything else: a late repeat must not bring a deleted session back.
        known = await record.claim(connection, session_id=session_id, result={"run_id": run_id})
        if known is not None:
            return await begun_before(connection, request, run_id=known.get("run_id", ""))

    session = await lock_or_create(
        connection, user_id=request.user_id, session_id=session_id, answers_task_id=request.answers_task_id
    )
    check_named_question(request, session)
    check_free(session.active_run_id, lease_expired=session.active_expired, session_id=session_id)
    check_free(session.first_queued, lease_expired=False, session_id=session_id)
    return await begin_now(connection, request, session, run_id=run_id)


async def begin_now(
    connection: Connection,
    request: BeginRun,
    session: LockedSession,
    *,
    run_id: str,
    waited_since: datetime | None = None,
) -> BegunRun:
    """In a session that no run holds; `waited_since` is None for a message that has not waited."""
    if request.retries_run_id:
        turn = await take_over_retried(connection, request, session)
        claimed = await claim_again(connection, turn.question)
        if claimed is None:
            claimed = await take_question(connection, request, session.question, waited_since=waited_since)
        return await _store(
            connection,
            request,
            turn.session,
            run_id=run_id,
            claimed=claimed,
            retried=turn.message,
            create_time=waited_since,
        )
    if request.conflict_policy is ConflictPolicy.ROLLBACK and waited_since is not None:
        session = await take_back_replaced(connection, session, since=waited_since)
        check_named_question(request, session)
    claimed = await take_question(connection, request, session.question, waited_since=waited_since)
    return await _store(connection, request, session, run_id=run_id, claimed=claimed, create_time=waited_since)


_ADD_MESSAGE = """
    INSERT INTO messages (user_id, session_id, position, message_id, type, status, content, create_time, run_id)
    SELECT s.user_id, s.session_id, s.message_count, :message_id, CAST(:type AS smallint),
        CAST(:message_status AS smallint), :content, s.update_time, :run_id
    FROM the_session AS s
    RETURNING 1"""

_TAKE_MESSAGE = """
    UPDATE messages AS m SET run_id = :run_id
    FROM the_session AS s
    WHERE m.user_id = s.user_id AND m.session_id = s.session_id AND m.message_id = :message_id
    RETURNING 1"""


@cache
def _store_statement(*, retries: bool, with_context: bool) -> Statement:
    """The session grows by the message, the message says where, and the context is what was there before.

    The note and the metadata may be large: they come with the newest message of the context alone, which is
    the last row. Nothing refers to the change counter, so that it is taken after all the rest.
    """
    texts = "CASE WHEN coalesce(m.nth, 1) = 1 THEN {} END AS {}" if with_context else "{} AS {}"
    return Statement(f"""
        WITH the_change AS ({CHANGED}),
        the_session AS (
            UPDATE sessions AS s
            SET title = CASE WHEN s.title = '' THEN :title ELSE s.title END, revision = s.revision + 1,
                message_count = s.message_count + {0 if retries else 1}, fencing_counter = s.fencing_counter + 1,
                update_time = statement_timestamp(), active_run_id = :run_id, pending_hitl_task_id = '',
                pending_hitl_expire_time = NULL
            WHERE s.user_id = :user_id AND s.session_id = :session_id
            RETURNING s.*
        ),
        the_message AS ({_TAKE_MESSAGE if retries else _ADD_MESSAGE}),
        the_run AS (
            INSERT INTO runs
                (user_id, run_id, session_id, request_id, holder_id, status, fencing_token, lease, lease_expire_time,
                 answered_task_id, human_position, human_message_id, create_time)
            SELECT s.user_id, :run_id, s.session_id, :request_id, :holder_id, {RunStatus.RUNNING}, s.fencing_counter,
                CAST(:lease AS interval), s.update_time + CAST(:lease AS interval), :answered_task_id,
                s.message_count, :message_id, coalesce(CAST(:create_time AS timestamptz), s.update_time)
            FROM the_session AS s
            RETURNING lease_expire_time, create_time
        )
        SELECT {SESSION_WITHOUT_TEXTS}, {texts.format("s.note", "note")}, {texts.format("s.metadata", "metadata")},
            s.fencing_counter, r.lease_expire_time, r.create_time AS run_create_time
            {f", {MESSAGE_NAMES}" if with_context else ""}
        FROM the_session AS s CROSS JOIN the_message CROSS JOIN the_run AS r
        {f"LEFT JOIN LATERAL ({CONTEXT}) AS m ON true ORDER BY m.position" if with_context else ""}""")


async def _store(
    connection: Connection,
    request: BeginRun,
    locked: LockedSession,
    *,
    run_id: str,
    claimed: HitlTask | None,
    create_time: datetime | None,
    retried: Message | None = None,
) -> BegunRun:
    position = retried.position if retried else locked.message_count + 1
    message_id = retried.message_id if retried else new_id()
    before = position - 1
    rows = await connection.rows(
        _store_statement(retries=retried is not None, with_context=_with_context(request, before=before)),
        {
            "user_id": locked.user_id,
            "session_id": locked.session_id,
            "bucket": bucket(locked.session_id),
            "run_id": run_id,
            "message_id": message_id,
            "title": request.title_if_new,
            "type": MessageType.HUMAN,
            "message_status": MessageStatus.COMPLETE,
            "content": request.message,
            "request_id": request.request_id,
            "holder_id": request.holder_id,
            "lease": request.lease,
            "answered_task_id": claimed.task_id if claimed else "",
            "create_time": create_time,
            "before": position,
            "max_rows": request.max_context_messages,
            "max_bytes": CONTEXT_MAX_BYTES,
        },
    )
    row = rows[-1]
    session = to_session(row)
    context: Sequence[Message] = ()
    if _with_context(request, before=before):
        context = tuple(to_message(row) for row in rows if row.position is not None)
    run = Run(
        run_id=run_id,
        user_id=session.user_id,
        session_id=session.session_id,
        request_id=request.request_id,
        status=RunStatus.RUNNING,
        human_position=position,
        human_message_id=message_id,
        lease_expire_time=row.lease_expire_time,
        create_time=row.run_create_time,
        answered_task_id=claimed.task_id if claimed else "",
    )
    return BegunRun(
        run=run,
        session=session,
        already_begun=False,
        is_holder=True,
        fencing_token=row.fencing_counter,
        context=context,
        context_truncated=len(context) < min(request.max_context_messages, before),
        claimed_task=claimed,
        human_message=replace(retried, run_id=run_id)
        if retried
        else Message(
            position=position,
            message_id=message_id,
            type=MessageType.HUMAN,
            status=MessageStatus.COMPLETE,
            content=request.message,
            create_time=session.update_time,
            run_id=run_id,
        ),
    )


def _with_context(request: BeginRun, *, before: int) -> bool:
    return request.max_context_messages > 0 and before > 0
