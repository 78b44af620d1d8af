"""Reading questions, and the changes of their state."""

from datetime import datetime
from functools import cache

from services.storage.errors import HitlTaskNotFound
from services.storage.models import HitlState, HitlTask, HitlTaskDraft
from services.storage.store.postgres.database import Connection, Database, Statement
from services.storage.store.postgres.rows import HITL_TASK, HITL_TASK_BYTES, to_hitl_task
from services.storage.store.results import HitlTaskCursor, HitlTaskPage

_GET = Statement(f"SELECT {HITL_TASK} FROM hitl_tasks AS t WHERE t.user_id = :user_id AND t.task_id = :task_id")


async def get_hitl_task(database: Database, user_id: str, task_id: str) -> HitlTask:
    for row in await database.rows(_GET, {"user_id": user_id, "task_id": task_id}):
        return to_hitl_task(row)
    raise HitlTaskNotFound(task_id)


async def find_task(connection: Connection, *, user_id: str, task_id: str) -> HitlTask | None:
    row = await connection.row(_GET, {"user_id": user_id, "task_id": task_id})
    return None if row is None else to_hitl_task(row)


_IS_PAST = "t.expire_time <= statement_timestamp()"

_IN_STATE = {
    HitlState.UNKNOWN: f"t.state NOT BETWEEN {HitlState.PENDING} AND {HitlState.CANCELLED}",
    HitlState.PENDING: f"t.state = {HitlState.PENDING} AND NOT {_IS_PAST}",
    HitlState.CLAIMED: f"t.state = {HitlState.CLAIMED}",
    HitlState.ANSWERED: f"t.state = {HitlState.ANSWERED}",
    HitlState.EXPIRED: f"(t.state = {HitlState.EXPIRED} OR (t.state = {HitlState.PENDING} AND {_IS_PAST}))",
    HitlState.CANCELLED: f"t.state = {HitlState.CANCELLED}",
}

_ORDER = "t.create_time, t.task_id"


@cache
def _list_statement(*, of_session: bool, state: HitlState | None, continued: bool) -> Statement:
    conditions = ["t.user_id = :user_id"]
    if of_session:
        conditions.append("t.session_id = :session_id")
    if state is not None:
        conditions.append(_IN_STATE[state])
    if continued:
        conditions.append("(t.create_time, t.task_id) > (:after_time, :after_id)")
    return Statement(f"""
        SELECT {HITL_TASK}, t.fetched
        FROM (
            SELECT t.*, count(*) OVER () AS fetched, row_number() OVER (ORDER BY {_ORDER}) AS nth,
                sum({HITL_TASK_BYTES}) OVER (ORDER BY {_ORDER} ROWS UNBOUNDED PRECEDING) AS bytes
            FROM (
                SELECT t.* FROM hitl_tasks AS t WHERE {" AND ".join(conditions)}
                ORDER BY {_ORDER} LIMIT CAST(:page_size AS bigint) + 1
            ) AS t
        ) AS t
        WHERE t.nth <= :page_size AND (t.nth = 1 OR t.bytes <= :max_bytes)
        ORDER BY {_ORDER}""")


async def list_hitl_tasks(
    database: Database,
    user_id: str,
    *,
    session_id: str,
    state: HitlState | None,
    page_size: int,
    after: HitlTaskCursor | None,
    max_bytes: int,
) -> HitlTaskPage:
    parameters: dict[str, object] = {"user_id": user_id, "page_size": page_size, "max_bytes": max_bytes}
    if session_id:
        parameters["session_id"] = session_id
    if after is not None:
        parameters |= {"after_time": after.create_time, "after_id": after.task_id}
    rows = await database.rows(
        _list_statement(of_session=bool(session_id), state=state, continued=after is not None), parameters
    )
    tasks = tuple(to_hitl_task(row) for row in rows)
    more = bool(rows) and rows[0].fetched > len(rows)
    return HitlTaskPage(tasks=tasks, next=HitlTaskCursor(tasks[-1].create_time, tasks[-1].task_id) if more else None)


_OPEN = Statement(f"""
    INSERT INTO hitl_tasks AS t
        (user_id, task_id, session_id, run_id, original_question, prompt, options, kind, answers, resume_state, state,
         create_time, expire_time)
    VALUES
        (:user_id, :task_id, :session_id, :run_id, :original_question, :prompt, :options, :kind, :answers,
         :resume_state, {HitlState.PENDING}, :now, :expire_time)
    RETURNING {HITL_TASK}""")


async def open_task(
    connection: Connection,
    draft: HitlTaskDraft,
    *,
    user_id: str,
    session_id: str,
    run_id: str,
    task_id: str,
    now: datetime,
) -> HitlTask:
    row = await connection.one(
        _OPEN,
        {
            "user_id": user_id,
            "task_id": task_id,
            "session_id": session_id,
            "run_id": run_id,
            "original_question": draft.original_question,
            "prompt": draft.prompt,
            "options": list(draft.options),
            "kind": draft.kind,
            "answers": list(draft.answers),
            "resume_state": draft.resume_state,
            "now": now,
            "expire_time": now + draft.expire_after,
        },
    )
    return to_hitl_task(row)


_SET_STATE = Statement(f"""
    UPDATE hitl_tasks AS t
    SET state = CAST(:state AS smallint), resolve_time = CASE CAST(:state AS smallint)
        WHEN {HitlState.CANCELLED} THEN statement_timestamp() WHEN {HitlState.EXPIRED} THEN t.expire_time END
    WHERE t.user_id = :user_id AND t.task_id = :task_id
    RETURNING {HITL_TASK}""")


async def set_state(connection: Connection, *, user_id: str, task_id: str, state: HitlState) -> HitlTask:
    """To any but ANSWERED. The caller holds the session's lock, and knows the question to be there."""
    row = await connection.one(_SET_STATE, {"user_id": user_id, "task_id": task_id, "state": state})
    return to_hitl_task(row)


_ANSWER = Statement(f"""
    UPDATE hitl_tasks AS t
    SET state = {HitlState.ANSWERED}, resolve_time = :now, answered_by_run_id = r.run_id, answer = m.content
    FROM runs AS r
    JOIN messages AS m
        ON m.user_id = r.user_id AND m.session_id = r.session_id AND m.position = r.human_position
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND t.user_id = r.user_id AND t.task_id = r.answered_task_id""")


async def answer_claimed(connection: Connection, *, user_id: str, run_id: str, now: datetime) -> None:
    """The question that a run claimed is answered, by the message that began the run."""
    await connection.execute(_ANSWER, {"user_id": user_id, "run_id": run_id, "now": now})
