"""A request to begin a run that came before."""

from services.storage.errors import SessionDeleted
from services.storage.models import RunStatus
from services.storage.store.commands import BeginRun
from services.storage.store.postgres.database import Connection
from services.storage.store.postgres.hitl_tasks import find_task
from services.storage.store.postgres.messages import find_message, read_context
from services.storage.store.postgres.rows import to_run
from services.storage.store.postgres.runs import find_run
from services.storage.store.postgres.sessions import find_session
from services.storage.store.results import BegunRun


async def begun_before(connection: Connection, request: BeginRun, *, run_id: str) -> BegunRun:
    """The run as it is by now, with all that its holder needs. Raises SessionDeleted."""
    run = await find_run(connection, user_id=request.user_id, run_id=run_id)
    names = {"user_id": request.user_id, "session_id": run.session_id if run else ""}
    session = await find_session(connection, **names)
    if run is None or session is None:
        raise SessionDeleted(request.session_id)
    is_holder = bool(request.holder_id) and request.holder_id == run.holder_id and run.status == RunStatus.RUNNING
    if not is_holder:
        return BegunRun.without_hold(to_run(run), session, already_begun=True)
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
        human_message=await find_message(connection, **names, message_id=run.human_message_id),
    )
