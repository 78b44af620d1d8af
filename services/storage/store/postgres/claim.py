"""What a message that begins a run means to the question that waits in its session."""

from datetime import datetime

from services.storage.errors import HitlTaskNotFound, HitlTaskNotPending, HitlTaskPending
from services.storage.models import HitlState, HitlTask, PendingHitlPolicy
from services.storage.store.commands import BeginRun
from services.storage.store.postgres.database import Connection
from services.storage.store.postgres.hitl_tasks import set_state
from services.storage.store.postgres.runs import ExpiredRunFound
from services.storage.store.postgres.session_lock import LockedSession


def check_named_question(request: BeginRun, session: LockedSession, *, interrupts: bool = False) -> None:
    """A question that the message names must be this session's, and open: whatever else is in the way.

    With `interrupts` one that the run under way has claimed is open, too: it will be, once that has ended.
    """
    if not request.answers_task_id:
        return
    task = session.question
    if task is None or task.session_id != session.session_id:
        raise HitlTaskNotFound(request.answers_task_id)
    if task.state is HitlState.CLAIMED:
        if session.active_expired:
            # The claim of a dead run is undone.
            raise ExpiredRunFound(session.session_id)
        if interrupts and session.active_run_id:
            return
    if task.state is not HitlState.PENDING:
        raise HitlTaskNotPending(task.task_id, state=task.state)


async def take_question(
    connection: Connection, request: BeginRun, task: HitlTask | None, *, waited_since: datetime | None
) -> HitlTask | None:
    """Claims the question that waits, or puts it out of the message's way."""
    # One that cannot be told to be open is nothing to answer: the message is taken as a new one.
    if task is None or task.state not in _OPEN:
        return None
    if task.state is HitlState.PENDING and _claims(request, task, waited_since=waited_since):
        return await set_state(connection, user_id=task.user_id, task_id=task.task_id, state=HitlState.CLAIMED)
    state = HitlState.EXPIRED if task.state is HitlState.EXPIRED else HitlState.CANCELLED
    await set_state(connection, user_id=task.user_id, task_id=task.task_id, state=state)
    return None


_OPEN = (HitlState.PENDING, HitlState.EXPIRED)


def _claims(request: BeginRun, task: HitlTask, *, waited_since: datetime | None) -> bool:
    if request.answers_task_id:
        return True
    if request.pending_hitl_policy is PendingHitlPolicy.REJECT:
        raise HitlTaskPending(task.task_id)
    seen = waited_since is None or task.create_time < waited_since
    return seen and request.pending_hitl_policy is PendingHitlPolicy.ANSWER


async def claim_again(connection: Connection, task: HitlTask | None) -> HitlTask | None:
    """The question that the message answered before, where nothing else has become of it."""
    if task is None or task.state is not HitlState.PENDING:
        return None
    return await set_state(connection, user_id=task.user_id, task_id=task.task_id, state=HitlState.CLAIMED)
