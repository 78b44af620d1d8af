"""What the user is asked, within the limits of what storage keeps of a question back."""

from collections.abc import Iterable

from services.agent.rag import wording
from services.agent.rag.state import RagState
from services.agent.request_context import AskBack, ChatRequestContext
from services.agent.schemas import HitlKind, HitlResumeState, Route
from services.agent.texts import MAX_ANSWERS, MAX_OPTION_BYTES, MAX_OPTIONS, MAX_TEXT_BYTES, clean, cut


def question_back(state: RagState, context: ChatRequestContext) -> AskBack:
    """What the state's decision, CLARIFY or SCOPE_SELECT, asks the user; cut where a turn would be lost otherwise."""
    decision, graded, plan = state["decision"], state["graded"], state["plan"]
    choose = decision.route is Route.SCOPE_SELECT
    prompt = wording.scope_prompt(context.language) if choose else wording.clarify_prompt(context.language)
    return AskBack(
        kind=HitlKind.SCOPE_SELECT if choose else HitlKind.CLARIFY,
        prompt=_text(graded.prompt) or prompt,
        options=_options(graded.options),
        resume_state=HitlResumeState(
            question=_text(state["question"]),
            route=decision.route,
            retrieval_status=decision.status,
            rewrite_count=state.get("rewrite_count", 0),
            complexity=plan.complexity,
            complexity_reason=_text(plan.reason),
            sub_questions=[part for part in map(_text, plan.sub_questions) if part],
            collection=context.collection,
        ),
        original_question=_text(state["original_question"]),
        answers=[_text(answer) for answer in state.get("answers", [])[-MAX_ANSWERS:]],
    )


def _text(text: str) -> str:
    return cut(clean(text).strip(), at_most=MAX_TEXT_BYTES)


def _options(options: Iterable[str]) -> list[str]:
    """Each once: two that are one after the cut are one."""
    kept = (cut(clean(option).strip(), at_most=MAX_OPTION_BYTES).strip() for option in options)
    return list(dict.fromkeys(option for option in kept if option))[:MAX_OPTIONS]
