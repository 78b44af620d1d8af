"""Old turns that a new run takes the place of: their messages, and the questions that they opened."""

from dataclasses import dataclass, replace
from datetime import datetime

from services.storage.errors import RunNotFound, RunNotRetryable
from services.storage.models import HitlState, HitlTask, Message, MessageType, RunStatus
from services.storage.store.commands import BeginRun
from services.storage.store.postgres.database import Connection, Row, Statement
from services.storage.store.postgres.hitl_tasks import find_task, set_state
from services.storage.store.postgres.messages import find_message
from services.storage.store.postgres.rows import to_run
from services.storage.store.postgres.runs import find_run
from services.storage.store.postgres.session_lock import LockedSession

_RETRYABLE = (RunStatus.FAILED, RunStatus.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedTurn:
    """The message of the turn, which is the session's last by now; `question` is the one that it answered."""

    message: Message
    session: LockedSession
    question: HitlTask | None


async def take_over_retried(connection: Connection, request: BeginRun, session: LockedSession) -> RetriedTurn:
    """Takes back what followed the message. Raises RunNotFound and RunNotRetryable."""
    run = await find_retried(connection, request, session)
    status = to_run(run).status
    message = await _message_of_last_turn(connection, session, run)
    if status not in _RETRYABLE or message is None:
        raise RunNotRetryable(run.run_id, status=status)
    session = await _keep_through(connection, session, message.position)
    await connection.execute(_FORGET_REPLY, {"user_id": run.user_id, "run_id": run.run_id})
    question = None
    if run.answered_task_id:
        question = await find_task(connection, user_id=run.user_id, task_id=run.answered_task_id)
    return RetriedTurn(message=message, session=session, question=question)


async def find_retried(connection: Connection, request: BeginRun, session: LockedSession) -> Row:
    """Raises RunNotFound; RunNotRetryable, where another run has begun since, and it cannot become the last again."""
    run = await find_run(connection, user_id=session.user_id, run_id=request.retries_run_id)
    if run is None or run.session_id != session.session_id:
        raise RunNotFound(request.retries_run_id)
    if run.fencing_token != session.fencing_counter:
        raise RunNotRetryable(run.run_id, status=to_run(run).status)
    return run


async def _message_of_last_turn(connection: Connection, session: LockedSession, run: Row) -> Message | None:
    names = {"user_id": session.user_id, "session_id": session.session_id}
    message = await find_message(connection, **names, message_id=run.human_message_id)
    if message is None or message.type is not MessageType.HUMAN:
        return None
    is_last = await _is_followed_by_its_own_alone(connection, session, run_id=run.run_id, position=message.position)
    return message if is_last else None


async def take_back_replaced(connection: Connection, session: LockedSession, *, since: datetime) -> LockedSession:
    """Takes back the turn that ended last since then, where its messages are still the session's last.

    Returns the session without it.
    """
    names = {"user_id": session.user_id, "session_id": session.session_id}
    run = await connection.row(_REPLACED, {**names, "position": session.message_count, "since": since})
    if run is None or not run.has_ended_since:
        return session
    message = await _message_of_last_turn(connection, session, run)
    if message is None:
        return session
    await connection.execute(_FORGET_TURN, {"user_id": session.user_id, "run_id": run.run_id})
    question = session.question
    if question is not None and question.run_id == run.run_id and question.state is HitlState.PENDING:
        question = await set_state(
            connection, user_id=session.user_id, task_id=question.task_id, state=HitlState.CANCELLED
        )
    return replace(await _keep_through(connection, session, message.position - 1), question=question)


# Whose the session's last message is tells which turn was its last.
_REPLACED = Statement("""
    SELECT r.run_id, r.human_message_id, coalesce(r.finish_time >= :since, false) AS has_ended_since FROM runs AS r
    WHERE r.user_id = :user_id AND r.run_id = (
        SELECT m.run_id FROM messages AS m
        WHERE m.user_id = :user_id AND m.session_id = :session_id AND m.position = :position
    )""")

_FOREIGN = Statement("""
    SELECT 1 FROM messages AS m
    WHERE m.user_id = :user_id AND m.session_id = :session_id AND m.position >= :position AND m.run_id <> :run_id
    LIMIT 1""")


async def _is_followed_by_its_own_alone(
    connection: Connection, session: LockedSession, *, run_id: str, position: int
) -> bool:
    names = {"user_id": session.user_id, "session_id": session.session_id}
    return await connection.value(_FOREIGN, {**names, "position": position, "run_id": run_id}) is None


# The note speaks of nothing that is gone, or the next one would come too late to replace it.
_KEEP_THROUGH = Statement("""
    WITH the_messages AS (
        DELETE FROM messages WHERE user_id = :user_id AND session_id = :session_id AND position > :position
    )
    UPDATE sessions
    SET message_count = :position, note_through_position = least(note_through_position, :position)
    WHERE user_id = :user_id AND session_id = :session_id""")


async def _keep_through(connection: Connection, session: LockedSession, position: int) -> LockedSession:
    names = {"user_id": session.user_id, "session_id": session.session_id}
    await connection.execute(_KEEP_THROUGH, {**names, "position": position})
    return replace(session, message_count=position)


_FORGET_REPLY = Statement("""
    UPDATE runs SET ai_position = 0, ai_message_id = '' WHERE user_id = :user_id AND run_id = :run_id""")

_FORGET_TURN = Statement("""
    UPDATE runs SET human_position = 0, human_message_id = '', ai_position = 0, ai_message_id = ''
    WHERE user_id = :user_id AND run_id = :run_id""")
