"""Goes on from a question that was put to the user, with their answer, without running the graph again."""

from collections.abc import Sequence

from services.agent.rag import wording
from services.agent.rag.answers import chosen, mentions, refined_question
from services.agent.rag.decision import ANSWER, ANSWER_PARTIALLY, MAX_REWRITES, Decision
from services.agent.rag.nodes import RagNodes
from services.agent.rag.outcome import RagOutcome
from services.agent.rag.question_back import question_back
from services.agent.rag.state import RagState
from services.agent.rag.wording import Line
from services.agent.request_context import AskBack, ChatRequestContext
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    ComplexityPlan,
    HitlTrace,
    PendingHitlState,
    Relevance,
    RetrievalStage,
    RetrievedChunk,
    Route,
)

_STRATEGY = "targeted_retrieval"


async def resume(nodes: RagNodes, *, context: ChatRequestContext, pending: PendingHitlState, answer: str) -> RagOutcome:
    """Goes on from `pending.resume_state`, which must be there.

    One targeted retrieval for the refined question; then an answer, a rewrite if one is left, or a question.

    What was asked and has been answered is not asked again: evidence that is still open in the same way is
    narrowed to what the answer names.
    """
    resumed_from = pending.resume_state
    assert resumed_from is not None
    answer = chosen(answer, pending.options)
    state = RagState(
        question=refined_question(resumed_from.question, answer),
        original_question=pending.original_question,
        stage=RetrievalStage.HITL_TARGETED,
        plan=ComplexityPlan(
            complexity=resumed_from.complexity,
            reason=resumed_from.complexity_reason,
            sub_questions=resumed_from.sub_questions,
        ),
        rewrite_count=resumed_from.rewrite_count,
        answers=[*pending.answers, answer],
        resumed=HitlTrace(
            prompt=pending.prompt,
            options=pending.options,
            resumed=True,
            answer=answer,
            resume_strategy=_STRATEGY,
            resumed_from=resumed_from,
        ),
    )
    wording.tell(context, Line.RESUMED, detail=answer)
    state.update(await nodes.retrieve(state, context))
    state.update(await nodes.grade(state, context))
    if state["decision"].route is Route.REWRITE:
        state.update(await nodes.rewrite(state, context))
        if state["rewrite"] is not None:
            state.update(await nodes.retrieve(state, context))
            state.update(await nodes.grade(state, context))
    if state["decision"].route in (Route.CLARIFY, Route.SCOPE_SELECT):
        if narrowed := _narrowed(state, pending=pending, asked=question_back(state, context)):
            state.update(narrowed)
            grade, status = state["graded"].grade, state["decision"].status
            wording.tell(context, Line.GRADED, detail=wording.verdict(context.language, grade, status))
    end = {Route.ANSWER: nodes.answer, Route.NO_KNOWLEDGE: nodes.nothing_known}.get(
        state["decision"].route, nodes.ask_back
    )
    return (await end(state, context))["outcome"]


def _narrowed(state: RagState, *, pending: PendingHitlState, asked: AskBack) -> RagState | None:
    """What replaces a question that was answered already: an answer from the evidence that the answers name."""
    if not _asked_before(state, pending=pending, asked=asked):
        return None
    naming = _naming(state["chunks"], state["answers"])
    if naming is not None:
        return {"chunks": naming, "decision": _answer_from(state)}
    if state["answers"][-1] in pending.options:
        return {"decision": ANSWER_PARTIALLY}
    answerable = state["graded"].grade.answerability in (Answerability.PARTIAL, Answerability.SUFFICIENT)
    return {"decision": ANSWER_PARTIALLY} if answerable and not asked.options else None


def _asked_before(state: RagState, *, pending: PendingHitlState, asked: AskBack) -> bool:
    """The same choice, whole, in part or with the chosen one in it; or the same open question once more."""
    if asked.options:
        offered = {option.casefold() for option in pending.options}
        named = any(mentions(answer, option) for option in asked.options for answer in state["answers"])
        return named or {option.casefold() for option in asked.options} <= offered
    if pending.options or asked.kind is not pending.kind:
        return False
    # Evidence that stays incomplete asks for more in ever other words, and would do so for ever.
    resumed_from = state["resumed"].resumed_from
    asked_for_more = resumed_from is not None and resumed_from.rewrite_count >= MAX_REWRITES
    asks_for_more = state["graded"].grade.ambiguity is not Ambiguity.MISSING_SLOT
    return asked.prompt == pending.prompt or (asked_for_more and asks_for_more)


def _naming(chunks: Sequence[RetrievedChunk], answers: Sequence[str]) -> list[RetrievedChunk] | None:
    """The chunks that name the answers, as many of them as can be had at once; None where none names any."""
    kept = list(chunks)
    narrowed = False
    for answer in reversed(answers):
        naming = [chunk for chunk in kept if mentions(f"{chunk.filename} {chunk.text}", answer)]
        if naming:
            kept, narrowed = naming, True
    return kept if narrowed else None


def _answer_from(state: RagState) -> Decision:
    grade = state["graded"].grade
    complete = grade.relevance is Relevance.STRONG and grade.answerability is Answerability.SUFFICIENT
    return ANSWER if complete else ANSWER_PARTIALLY
