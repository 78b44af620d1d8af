"""Questions on their way in: named, listed, withdrawn, and as a run puts one."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import hitl_service_pb2
from services.runtime import page_token
from services.runtime.page_token import PagedQuery
from services.storage.models import HitlKind, HitlState, HitlTaskDraft
from services.storage.rpc.checks import Checks
from services.storage.rpc.convert.fields import MAX_MESSAGE_BYTES, by_number, request_hash, texts
from services.storage.store.results import HitlTaskCursor

MAX_OPTIONS = 20
MAX_OPTION_BYTES = 1_024
MAX_ANSWERS = 100
MAX_SUB_QUESTIONS = 4
SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=1), timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHitlTasks:
    query: PagedQuery
    session_id: str
    state: HitlState | None
    page_size: int
    after: HitlTaskCursor | None


def task_name(request: hitl_service_pb2.GetHitlTaskRequest) -> tuple[str, str]:
    """The user_id and task_id."""
    checks = Checks()
    name = checks.name("user_id", request.user_id), checks.name("task_id", request.task_id)
    checks.done()
    return name


def cancel_hitl_task(request: hitl_service_pb2.CancelHitlTaskRequest) -> tuple[str, str, str, bytes]:
    """The user_id, task_id and request_id, and the request's hash."""
    checks = Checks()
    name = checks.name("user_id", request.user_id), checks.name("task_id", request.task_id)
    request_id = checks.optional_name("request_id", request.request_id)
    checks.done()
    return *name, request_id, request_hash(request)


def list_hitl_tasks(request: hitl_service_pb2.ListHitlTasksRequest) -> ListHitlTasks:
    checks = Checks()
    user_id = checks.name("user_id", request.user_id)
    session_id = checks.optional_name("session_id", request.session_id)
    states: dict[int, HitlState | None] = {0: None, **by_number(HitlState)}
    state = checks.choice("state", request.state, states, otherwise=None)
    page_size = checks.page_size(request.page_size)
    checks.done()
    query = PagedQuery("ListHitlTasks", user_id, (session_id, state or 0))
    after = HitlTaskCursor(*page_token.decode(query, token, datetime, str)) if (token := request.page_token) else None
    return ListHitlTasks(query=query, session_id=session_id, state=state, page_size=page_size, after=after)


def opened_task(checks: Checks, draft: hitl_pb2.HitlTaskDraft, *, expire_after: timedelta) -> HitlTaskDraft:
    """`expire_after` is that of a question that names none."""
    if draft.HasField("expire_after"):
        expire_after = checks.duration(
            "opened_task.expire_after", draft.expire_after, at_least=SHORTEST_WAIT, at_most=LONGEST_WAIT
        )
    return HitlTaskDraft(
        original_question=checks.text(
            "opened_task.original_question", draft.original_question, at_most=MAX_MESSAGE_BYTES, required=True
        ),
        prompt=checks.text("opened_task.prompt", draft.prompt, at_most=MAX_MESSAGE_BYTES, required=True),
        options=texts(checks, "opened_task.options", draft.options, count=MAX_OPTIONS, at_most=MAX_OPTION_BYTES),
        kind=checks.choice("opened_task.kind", draft.kind, by_number(HitlKind), otherwise=HitlKind.CLARIFY),
        answers=texts(checks, "opened_task.answers", draft.answers, count=MAX_ANSWERS, at_most=MAX_MESSAGE_BYTES),
        resume_state=_resume_state(checks, draft.resume_state),
        expire_after=expire_after,
    )


def _resume_state(checks: Checks, state: trace_pb2.HitlResumeState) -> bytes:
    field = "opened_task.resume_state"
    checks.text(f"{field}.question", state.question, at_most=MAX_MESSAGE_BYTES)
    checks.text(f"{field}.complexity_reason", state.complexity_reason, at_most=MAX_MESSAGE_BYTES)
    checks.optional_name(f"{field}.collection", state.collection)
    checks.number(f"{field}.rewrite_count", state.rewrite_count, at_least=0)
    texts(checks, f"{field}.sub_questions", state.sub_questions, count=MAX_SUB_QUESTIONS, at_most=MAX_MESSAGE_BYTES)
    for name, enum in (
        ("route", trace_pb2.Route),
        ("retrieval_status", trace_pb2.RetrievalStatus),
        ("complexity", trace_pb2.Complexity),
    ):
        checks.choice(f"{field}.{name}", getattr(state, name), enum.DESCRIPTOR.values_by_number, otherwise=None)
    return state.SerializeToString()
