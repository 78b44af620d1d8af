"""Finishing a run, in the transaction of a connection."""

from services.runtime.errors import InvalidField
from services.storage.errors import LeaseLost, MessageIdExists, RunNotFound
from services.storage.models import (
    REPLY_STATUS,
    HitlState,
    HitlTask,
    Message,
    NewMessage,
    RunStatus,
    Session,
)
from services.storage.store.commands import FinishRun
from services.storage.store.postgres.changes import CHANGED, bucket
from services.storage.store.postgres.database import Connection, Row, Statement
from services.storage.store.postgres.hitl_tasks import answer_claimed, find_task, open_task, set_state
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.messages import INSERT_MESSAGE, find_message, insert_parameters
from services.storage.store.postgres.metadata import MERGED_METADATA, check_merged, merge_parameters
from services.storage.store.postgres.rows import RUN, SESSION, to_run, to_session
from services.storage.store.results import FinishedRun

_LOCK = Statement(f"""
    SELECT {SESSION} FROM sessions AS s
    WHERE s.user_id = :user_id
        AND s.session_id = (SELECT r.session_id FROM runs AS r WHERE r.user_id = :user_id AND r.run_id = :run_id)
    FOR UPDATE""")

# A statement of its own: the one that waited for the lock may have seen the run as it was before.
_LOOK = Statement(f"""
    SELECT {RUN}, statement_timestamp() AS now, EXISTS (
        SELECT 1 FROM messages AS m
        WHERE m.user_id = r.user_id AND m.session_id = r.session_id AND m.message_id = :message_id
    ) AS message_id_exists
    FROM runs AS r WHERE r.user_id = :user_id AND r.run_id = :run_id""")


async def finish_run(connection: Connection, request: FinishRun) -> FinishedRun:
    _check_question(request)
    names = {"user_id": request.user_id, "run_id": request.run_id}
    locked = await connection.row(_LOCK, names)
    if locked is None:
        raise RunNotFound(request.run_id)
    message_id = request.reply.message_id if request.reply else ""
    run = await connection.row(_LOOK, {**names, "message_id": message_id})
    if run is None:
        raise RunNotFound(request.run_id)
    if run.fencing_token != request.fencing_token:
        raise LeaseLost(request.run_id)
    if run.status != RunStatus.RUNNING:
        if run.finish_hash != request.request_hash:
            raise LeaseLost(request.run_id)
        return await _finished_before(connection, run, session=to_session(locked))
    if run.message_id_exists:
        raise MessageIdExists(message_id)
    return await _store(connection, request, run, message_count=locked.message_count)


def _check_question(request: FinishRun) -> None:
    if (request.status is RunStatus.AWAITING_INPUT) != (request.opened_task is not None):
        raise InvalidField.of("opened_task", "must be there with the status AWAITING_INPUT, and with no other")


async def _store(connection: Connection, request: FinishRun, run: Row, *, message_count: int) -> FinishedRun:
    reply = None
    if request.reply is not None:
        reply = _as_stored(request.reply, request.status, run=run, position=message_count + 1)
        parameters = insert_parameters(reply, user_id=run.user_id, session_id=run.session_id)
        await connection.execute(INSERT_MESSAGE, parameters)

    opened, pending = await _settle_questions(connection, request, run)
    session = await _change_session(connection, request, run, replied=reply is not None, pending=pending)
    ended = await connection.one(
        _END,
        {
            "user_id": run.user_id,
            "run_id": run.run_id,
            "bucket": bucket(run.session_id),
            "status": request.status,
            "finish_hash": request.request_hash,
            "now": run.now,
            "ai_position": reply.position if reply else 0,
            "ai_message_id": reply.message_id if reply else "",
            "opened_task_id": opened.task_id if opened else "",
            "error_code": request.error.code if request.error else None,
            "error_reason": request.error.reason if request.error else None,
            "error_message": request.error.message if request.error else None,
            "input_tokens": request.usage.input_tokens if request.usage else None,
            "output_tokens": request.usage.output_tokens if request.usage else None,
            "model_calls": request.usage.model_calls if request.usage else None,
            "session_revision": session.revision,
        },
    )
    return FinishedRun(run=to_run(ended), session=session, reply=reply, opened_task=opened)


def _as_stored(reply: NewMessage, status: RunStatus, *, run: Row, position: int) -> Message:
    return Message(
        position=position,
        message_id=reply.message_id or new_id(),
        type=reply.type,
        status=REPLY_STATUS[status],
        content=reply.content,
        create_time=run.now,
        run_id=run.run_id,
        trace=reply.trace,
        extra_json=reply.extra_json,
    )


async def _settle_questions(
    connection: Connection, request: FinishRun, run: Row
) -> tuple[HitlTask | None, HitlTask | None]:
    """The question that the run opened, and the one that waits for the user from now on."""
    pending = None
    if run.answered_task_id and request.status in (RunStatus.CANCELLED, RunStatus.FAILED):
        pending = await set_state(
            connection, user_id=run.user_id, task_id=run.answered_task_id, state=HitlState.PENDING
        )
    elif run.answered_task_id:
        await answer_claimed(connection, user_id=run.user_id, run_id=run.run_id, now=run.now)
    if request.opened_task is None:
        return None, pending
    opened = await open_task(
        connection,
        request.opened_task,
        user_id=run.user_id,
        session_id=run.session_id,
        run_id=run.run_id,
        task_id=new_id(),
        now=run.now,
    )
    return opened, opened


_CHANGE_SESSION = Statement(f"""
    UPDATE sessions AS s
    SET revision = s.revision + 1, message_count = s.message_count + CAST(:replies AS bigint), update_time = :now,
        active_run_id = '', pending_hitl_task_id = :task_id, pending_hitl_expire_time = :task_expire_time,
        metadata = {MERGED_METADATA}
    WHERE s.user_id = :user_id AND s.session_id = :session_id
    RETURNING {SESSION}""")


async def _change_session(
    connection: Connection, request: FinishRun, run: Row, *, replied: bool, pending: HitlTask | None
) -> Session:
    changed = await connection.one(
        _CHANGE_SESSION,
        {
            "user_id": run.user_id,
            "session_id": run.session_id,
            "now": run.now,
            "replies": int(replied),
            "task_id": pending.task_id if pending else "",
            "task_expire_time": pending.expire_time if pending else None,
            **merge_parameters(request.metadata),
        },
    )
    session = to_session(changed)
    check_merged(session, request.metadata)
    return session


_END = Statement(f"""
    WITH the_change AS ({CHANGED})
    UPDATE runs AS r
    SET status = :status, finish_hash = :finish_hash, finish_time = :now, ai_position = :ai_position,
        ai_message_id = :ai_message_id, opened_task_id = :opened_task_id, error_code = :error_code,
        error_reason = :error_reason, error_message = :error_message, input_tokens = :input_tokens,
        output_tokens = :output_tokens, model_calls = :model_calls, session_revision = :session_revision
    WHERE r.user_id = :user_id AND r.run_id = :run_id
    RETURNING {RUN}""")


async def _finished_before(connection: Connection, run: Row, *, session: Session) -> FinishedRun:
    reply = None
    if run.ai_message_id:
        reply = await find_message(
            connection, user_id=run.user_id, session_id=run.session_id, message_id=run.ai_message_id
        )
    opened = None
    if run.opened_task_id:
        opened = await find_task(connection, user_id=run.user_id, task_id=run.opened_task_id)
    return FinishedRun(run=to_run(run), session=session, reply=reply, opened_task=opened)
