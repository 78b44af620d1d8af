"""Where evidence leads: the table that the whole pipeline follows."""

from dataclasses import dataclass

from services.agent.schemas import Ambiguity, Answerability, EvidenceGrade, Relevance, RetrievalStatus, Route

MAX_REWRITES = 1


@dataclass(frozen=True, slots=True)
class Decision:
    route: Route
    status: RetrievalStatus


ANSWER = Decision(Route.ANSWER, RetrievalStatus.ANSWERABLE)
ANSWER_PARTIALLY = Decision(Route.ANSWER, RetrievalStatus.PARTIAL)
REWRITE = Decision(Route.REWRITE, RetrievalStatus.NEEDS_REWRITE)
CLARIFY = Decision(Route.CLARIFY, RetrievalStatus.NEEDS_CLARIFICATION)
SCOPE_SELECT = Decision(Route.SCOPE_SELECT, RetrievalStatus.NEEDS_SCOPE_SELECTION)
NO_KNOWLEDGE = Decision(Route.NO_KNOWLEDGE, RetrievalStatus.NO_KNOWLEDGE)


def decide(grade: EvidenceGrade, *, rewrite_count: int, in_sub_agent: bool, found: bool) -> Decision:
    """The first row of the evidence table that fits; what a grade leaves out counts as the least."""
    if not found or grade.relevance in (None, Relevance.NONE):
        return NO_KNOWLEDGE
    if grade.ambiguity is Ambiguity.MISSING_SLOT:
        return CLARIFY
    if grade.ambiguity is Ambiguity.MULTIPLE_CANDIDATES:
        return SCOPE_SELECT
    complete = grade.relevance is Relevance.STRONG and grade.answerability is Answerability.SUFFICIENT
    if grade.route is Route.ANSWER and complete:
        return ANSWER
    partial = grade.answerability is Answerability.PARTIAL
    if in_sub_agent:
        return ANSWER_PARTIALLY if partial or grade.answerability is Answerability.SUFFICIENT else NO_KNOWLEDGE
    if grade.route is Route.REWRITE or partial:
        if rewrite_count < MAX_REWRITES:
            return REWRITE
        return CLARIFY if partial else NO_KNOWLEDGE
    return ANSWER if complete else NO_KNOWLEDGE
