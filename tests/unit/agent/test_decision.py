"""The evidence table, row by row."""

import itertools

import pytest

from services.agent.rag.decision import (
    ANSWER,
    ANSWER_PARTIALLY,
    CLARIFY,
    NO_KNOWLEDGE,
    REWRITE,
    SCOPE_SELECT,
    Decision,
    decide,
)
from services.agent.schemas import Ambiguity, Answerability, EvidenceGrade, Relevance, Route


def grade(
    route: Route | None = Route.ANSWER,
    relevance: Relevance | None = Relevance.STRONG,
    answerability: Answerability | None = Answerability.SUFFICIENT,
    ambiguity: Ambiguity | None = Ambiguity.NONE,
) -> EvidenceGrade:
    return EvidenceGrade(route=route, relevance=relevance, answerability=answerability, ambiguity=ambiguity)


EVERY_GRADE = [
    grade(*parts)
    for parts in itertools.product([*Route, None], [*Relevance, None], [*Answerability, None], [*Ambiguity, None])
]
EVERY_PLACE = list(itertools.product((0, 1), (False, True)))

REWRITABLE = grade(Route.REWRITE, Relevance.WEAK, Answerability.NONE)
PARTIAL = grade(answerability=Answerability.PARTIAL)


@pytest.mark.parametrize(("rewrite_count", "in_sub_agent"), EVERY_PLACE)
def test_nothing_found_or_nothing_relevant_is_nothing_known(rewrite_count: int, in_sub_agent: bool) -> None:
    for each in EVERY_GRADE:
        assert decide(each, rewrite_count=rewrite_count, in_sub_agent=in_sub_agent, found=False) == NO_KNOWLEDGE
        if each.relevance in (None, Relevance.NONE):
            assert decide(each, rewrite_count=rewrite_count, in_sub_agent=in_sub_agent, found=True) == NO_KNOWLEDGE


@pytest.mark.parametrize(("rewrite_count", "in_sub_agent"), EVERY_PLACE)
def test_ambiguity_asks_back_whatever_the_route_says(rewrite_count: int, in_sub_agent: bool) -> None:
    for each in EVERY_GRADE:
        if each.relevance in (None, Relevance.NONE):
            continue
        decision = decide(each, rewrite_count=rewrite_count, in_sub_agent=in_sub_agent, found=True)
        assert (decision == CLARIFY) or each.ambiguity is not Ambiguity.MISSING_SLOT
        assert (decision == SCOPE_SELECT) == (each.ambiguity is Ambiguity.MULTIPLE_CANDIDATES)


@pytest.mark.parametrize(("rewrite_count", "in_sub_agent"), EVERY_PLACE)
def test_strong_and_sufficient_evidence_with_route_answer_is_answered(rewrite_count: int, in_sub_agent: bool) -> None:
    assert decide(grade(), rewrite_count=rewrite_count, in_sub_agent=in_sub_agent, found=True) == ANSWER


def test_a_sub_agent_never_rewrites() -> None:
    for each, rewrite_count in itertools.product(EVERY_GRADE, (0, 1)):
        assert decide(each, rewrite_count=rewrite_count, in_sub_agent=True, found=True) != REWRITE


def test_a_query_is_never_rewritten_twice() -> None:
    for each, rewrite_count in itertools.product(EVERY_GRADE, (1, 2)):
        assert decide(each, rewrite_count=rewrite_count, in_sub_agent=False, found=True) != REWRITE


SUB_AGENT_ROWS = [
    (PARTIAL, ANSWER_PARTIALLY),
    (grade(Route.REWRITE), ANSWER_PARTIALLY),
    (grade(relevance=Relevance.WEAK), ANSWER_PARTIALLY),
    (grade(answerability=Answerability.NONE), NO_KNOWLEDGE),
    (REWRITABLE, NO_KNOWLEDGE),
    (grade(answerability=None), NO_KNOWLEDGE),
]


@pytest.mark.parametrize(("graded", "decision"), SUB_AGENT_ROWS)
def test_a_sub_agent_answers_in_part_or_knows_nothing(graded: EvidenceGrade, decision: Decision) -> None:
    assert decide(graded, rewrite_count=0, in_sub_agent=True, found=True) == decision


MAIN_ROWS = [
    (REWRITABLE, 0, REWRITE),
    (grade(Route.REWRITE), 0, REWRITE),
    (PARTIAL, 0, REWRITE),
    (grade(None, answerability=Answerability.PARTIAL), 0, REWRITE),
    (REWRITABLE, 1, NO_KNOWLEDGE),
    (grade(Route.REWRITE), 1, NO_KNOWLEDGE),
    (PARTIAL, 1, CLARIFY),
    (grade(Route.REWRITE, answerability=Answerability.PARTIAL), 1, CLARIFY),
    (grade(Route.CLARIFY), 0, ANSWER),
    (grade(Route.NO_KNOWLEDGE), 1, ANSWER),
    (grade(None), 0, ANSWER),
    (grade(relevance=Relevance.WEAK), 0, NO_KNOWLEDGE),
    (grade(answerability=Answerability.NONE), 0, NO_KNOWLEDGE),
    (grade(Route.CLARIFY, Relevance.WEAK, Answerability.NONE), 1, NO_KNOWLEDGE),
]


@pytest.mark.parametrize(("graded", "rewrite_count", "decision"), MAIN_ROWS)
def test_the_main_question_rewrites_once_then_settles(
    graded: EvidenceGrade, rewrite_count: int, decision: Decision
) -> None:
    assert decide(graded, rewrite_count=rewrite_count, in_sub_agent=False, found=True) == decision


def test_what_a_grade_leaves_out_counts_as_the_least() -> None:
    assert decide(EvidenceGrade(), rewrite_count=0, in_sub_agent=False, found=True) == NO_KNOWLEDGE
