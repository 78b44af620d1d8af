"""Beginning a run, in the transaction of a connection."""

from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.storage.errors import (
    Contention,
    HitlTaskNotFound,
    HitlTaskNotPending,
    HitlTaskPending,
    RunInProgress,
    SessionDeleted,
)
from services.storage.models import (
    HitlState,
    HitlTask,
    MessageStatus,
    MessageType,
    PendingHitlPolicy,
    RunStatus,
)
from services.storage.store.base import BeginRun, BegunRun
from services.storage.store.postgres.changes import CHANGED, bucket
from services.storage.store.postgres.hitl_tasks import find_task, set_state
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.messages import read_context
from services.storage.store.postgres.requests import RequestRecord
from services.storage.store.postgres.rows import RUN, SESSION, to_run, to_session
from services.storage.store.postgres.runs import ExpiredRunFound, find_run

_RETRY_AFTER_S = 1.0


async def begin_run(connection: AsyncConnection, request: BeginRun, *, record: RequestRecord | None) -> BegunRun:
    """Raises ExpiredRunFound too."""
    run_id = new_id()
    session_id = request.session_id or new_id()
    if record is not None:
        # Before anything else: a late repeat must not bring a deleted session back.
        known = await record.claim(connection, session_id=session_id, result={"run_id": run_id})
        if known is not None:
            return await _begun_before(connection, request, run_id=known.get("run_id", ""))

    session = await _lock_session(connection, user_id=request.user_id, session_id=session_id)
    task = await _find_question(connection, request, session)
    if session.active_run_id:
        await _refuse_while_active(connection, session)
    claimed = await _take_question(connection, request, task)
    return await _store(connection, request, session, run_id=run_id, claimed=claimed)


_LOCK = text("""
    SELECT s.user_id, s.session_id, s.message_count, s.active_run_id, s.pending_hitl_task_id, s.fencing_counter
    FROM sessions AS s WHERE s.user_id = :user_id AND s.session_id = :session_id FOR UPDATE""")

_CREATE = text("""
    INSERT INTO sessions AS s (user_id, session_id, uid, create_time, update_time)
    VALUES (:user_id, :session_id, :uid, statement_timestamp(), statement_timestamp())
    ON CONFLICT (user_id, session_id) DO NOTHING
    RETURNING s.user_id, s.session_id, s.message_count, s.active_run_id, s.pending_hitl_task_id, s.fencing_counter""")


async def _lock_session(connection: AsyncConnection, *, user_id: str, session_id: str) -> Row[Any]:
    names = {"user_id": user_id, "session_id": session_id}
    # The second round meets a session that someone else made in between.
    for _ in range(2):
        session = (await connection.execute(_LOCK, names)).one_or_none()
        if session is not None:
            return session
        session = (await connection.execute(_CREATE, {**names, "uid": new_id()})).one_or_none()
        if session is not None:
            return session
    raise Contention


async def _find_question(connection: AsyncConnection, request: BeginRun, session: Row[Any]) -> HitlTask | None:
    """The question that the message may answer, as it is now that the session is locked."""
    task_id = request.answers_task_id or session.pending_hitl_task_id
    if not task_id:
        return None
    task = await find_task(connection, user_id=request.user_id, task_id=task_id)
    if request.answers_task_id:
        if task is None or task.session_id != session.session_id:
            raise HitlTaskNotFound(task_id)
        if task.state is HitlState.CLAIMED:
            # By a run that may be dead, whose claim is undone then.
            await _raise_if_expired(connection, session)
        if task.state is not HitlState.PENDING:
            raise HitlTaskNotPending(task_id, state=task.state)
    return task


_LEASE_EXPIRED = text("""
    SELECT r.lease_expire_time <= statement_timestamp() FROM runs AS r
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND r.status = 2""")


async def _raise_if_expired(connection: AsyncConnection, session: Row[Any]) -> None:
    names = {"user_id": session.user_id, "run_id": session.active_run_id}
    if (await connection.execute(_LEASE_EXPIRED, names)).scalar_one_or_none():
        raise ExpiredRunFound(session.session_id)


async def _refuse_while_active(connection: AsyncConnection, session: Row[Any]) -> None:
    await _raise_if_expired(connection, session)
    raise RunInProgress(session.active_run_id, retry_after_s=_RETRY_AFTER_S)


async def _take_question(connection: AsyncConnection, request: BeginRun, task: HitlTask | None) -> HitlTask | None:
    """Claims the question, or puts it out of the message's way."""
    # One that cannot be told to be open is nothing to answer: the message is taken as a new one.
    if task is None or task.state is HitlState.UNKNOWN:
        return None
    if task.state is HitlState.EXPIRED:
        state = HitlState.EXPIRED
    elif request.answers_task_id or request.pending_hitl_policy is PendingHitlPolicy.ANSWER:
        state = HitlState.CLAIMED
    elif request.pending_hitl_policy is PendingHitlPolicy.REPLACE:
        state = HitlState.CANCELLED
    else:
        raise HitlTaskPending(task.task_id)
    taken = await set_state(connection, user_id=task.user_id, task_id=task.task_id, state=state)
    return taken if state is HitlState.CLAIMED else None


# One statement: the session grows by the message, and the message says where.
_ADD = text(f"""
    WITH the_session AS (
        UPDATE sessions AS s
        SET title = CASE WHEN s.title = '' THEN :title ELSE s.title END, revision = s.revision + 1,
            message_count = s.message_count + 1, fencing_counter = s.fencing_counter + 1,
            update_time = statement_timestamp(), active_run_id = :run_id, pending_hitl_task_id = '',
            pending_hitl_expire_time = NULL
        WHERE s.user_id = :user_id AND s.session_id = :session_id
        RETURNING {SESSION}, s.fencing_counter
    ), the_message AS (
        INSERT INTO messages (user_id, session_id, position, message_id, type, status, content, create_time, run_id)
        SELECT s.user_id, s.session_id, s.message_count, :message_id, CAST(:type AS smallint),
            CAST(:message_status AS smallint), :content, s.update_time, :run_id
        FROM the_session AS s
    )
    SELECT * FROM the_session""")

_BEGIN = text(f"""
    WITH the_change AS ({CHANGED})
    INSERT INTO runs AS r
        (user_id, run_id, session_id, request_id, holder_id, status, fencing_token, lease, lease_expire_time,
         answered_task_id, human_position, human_message_id, create_time)
    VALUES
        (:user_id, :run_id, :session_id, :request_id, :holder_id, :run_status, :fencing_token, :lease,
         CAST(:now AS timestamptz) + CAST(:lease AS interval), :answered_task_id, :human_position, :message_id, :now)
    RETURNING {RUN}""")


async def _store(
    connection: AsyncConnection,
    request: BeginRun,
    locked: Row[Any],
    *,
    run_id: str,
    claimed: HitlTask | None,
) -> BegunRun:
    names = {"user_id": locked.user_id, "session_id": locked.session_id, "run_id": run_id, "message_id": new_id()}
    # Before the rest, so that nothing comes after the change counter.
    context, truncated = await read_context(
        connection,
        user_id=locked.user_id,
        session_id=locked.session_id,
        before=locked.message_count + 1,
        max_messages=request.max_context_messages,
    )
    added = await connection.execute(
        _ADD,
        {
            **names,
            "title": request.title_if_new,
            "type": MessageType.HUMAN,
            "message_status": MessageStatus.COMPLETE,
            "content": request.message,
        },
    )
    session = added.one()
    begun = await connection.execute(
        _BEGIN,
        {
            **names,
            "bucket": bucket(locked.session_id),
            "request_id": request.request_id,
            "holder_id": request.holder_id,
            "run_status": RunStatus.RUNNING,
            "fencing_token": session.fencing_counter,
            "lease": request.lease,
            "answered_task_id": claimed.task_id if claimed else "",
            "human_position": session.message_count,
            "now": session.update_time,
        },
    )
    run = begun.one()
    return BegunRun(
        run=to_run(run),
        session=to_session(session),
        already_begun=False,
        is_holder=True,
        fencing_token=run.fencing_token,
        context=context,
        context_truncated=truncated,
        claimed_task=claimed,
    )


_SESSION = text(f"SELECT {SESSION} FROM sessions AS s WHERE s.user_id = :user_id AND s.session_id = :session_id")


async def _begun_before(connection: AsyncConnection, request: BeginRun, *, run_id: str) -> BegunRun:
    run = await find_run(connection, user_id=request.user_id, run_id=run_id)
    names = {"user_id": request.user_id, "session_id": run.session_id if run else ""}
    found = (await connection.execute(_SESSION, names)).one_or_none()
    if run is None or found is None:
        raise SessionDeleted(request.session_id)
    session = to_session(found)
    is_holder = bool(request.holder_id) and request.holder_id == run.holder_id and run.status == RunStatus.RUNNING
    if not is_holder:
        return BegunRun(
            run=to_run(run),
            session=session,
            already_begun=True,
            is_holder=False,
            fencing_token=0,
            context=(),
            context_truncated=False,
            claimed_task=None,
        )
    claimed = None
    if run.answered_task_id:
        claimed = await find_task(connection, user_id=request.user_id, task_id=run.answered_task_id)
    context, truncated = await read_context(
        connection,
        user_id=request.user_id,
        session_id=run.session_id,
        before=run.human_position,
        max_messages=request.max_context_messages,
    )
    return BegunRun(
        run=to_run(run),
        session=session,
        already_begun=True,
        is_holder=True,
        fencing_token=run.fencing_token,
        context=context,
        context_truncated=truncated,
        claimed_task=claimed,
    )
