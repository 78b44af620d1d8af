"""The built-in grader: no model, but a measure of how much of the question the evidence covers, and how openly."""

import asyncio
from collections.abc import Sequence

from services.agent.models.base import GradedEvidence
from services.agent.models.extractive import wording
from services.agent.models.extractive.asking import Asking
from services.agent.models.extractive.evidence import Evidence, Passage, weigh
from services.agent.models.extractive.scopes import openness
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    EvidenceGrade,
    Relevance,
    RetrievedChunk,
    Route,
)

# Shares of the question's weight that one sentence, with its headings, has to cover. Above half of it the
# sentence speaks of what is asked, though a word or two may be put differently; below a quarter it shares
# no more than a word with it. Where the kind of answer that is asked for is missing, much more is wanted.
_SUFFICIENT = 0.58
_PARTIAL = 0.5
_RELATED = 0.25
# A sentence that has the question's names and hardly a word of what is asked about them is no answer.
_ASPECT = 0.3
_SUFFICIENT_OTHER_KIND = 0.8


class ExtractiveGradeModel:
    """A GradeModel that needs no network and gives the same grade for the same input."""

    async def grade(self, question: str, *, chunks: Sequence[RetrievedChunk]) -> GradedEvidence:
        # Off the loop: some milliseconds of work, and the dictionary the first time.
        return await asyncio.to_thread(grade, question, list(chunks))


def grade(question: str, chunks: Sequence[RetrievedChunk]) -> GradedEvidence:
    evidence = weigh(question, chunks)
    language = evidence.language
    if not evidence.passages:
        reason = wording.off_subject(language, _missing(evidence)) if chunks else wording.no_evidence(language)
        return _graded(Relevance.NONE, Answerability.NONE, route=Route.NO_KNOWLEDGE, reason=reason)
    best = max(evidence.passages, key=lambda passage: (passage.coverage, passage.score))
    relevance, answerability = _judge(evidence, best)
    if answerability is Answerability.NONE:
        route = Route.NO_KNOWLEDGE if relevance is Relevance.NONE else Route.REWRITE
        reason = wording.off_subject(language, _missing(evidence))
        return _graded(relevance, answerability, route=route, reason=reason, confidence=1 - best.coverage)
    if answerability is Answerability.SUFFICIENT and (open_grade := _open(evidence, relevance)) is not None:
        return open_grade
    is_sufficient = answerability is Answerability.SUFFICIENT
    return _graded(
        relevance,
        answerability,
        route=Route.ANSWER if is_sufficient else Route.REWRITE,
        reason=wording.covered(language, best.coverage, best.filename),
        confidence=best.coverage,
        prompt="" if is_sufficient else wording.say_more(language, _missing(evidence)),
    )


def _judge(evidence: Evidence, best: Passage) -> tuple[Relevance, Answerability]:
    if best.coverage < _RELATED:
        return Relevance.NONE, Answerability.NONE
    if best.aspect < _ASPECT:
        return Relevance.WEAK, Answerability.NONE
    lacks_specific = any(term.is_specific and term.form in evidence.absent for term in evidence.terms)
    if best.coverage < _PARTIAL or (lacks_specific and best.coverage < _SUFFICIENT):
        return Relevance.WEAK, Answerability.NONE
    if lacks_specific:
        # Another product's answer is none: a name or number that nothing mentions leaves it open at best.
        return Relevance.WEAK, Answerability.PARTIAL
    fitting = max((passage.coverage for passage in evidence.passages if passage.fits), default=0.0)
    wanted = _SUFFICIENT if evidence.asking is Asking.FACT or fitting >= _SUFFICIENT else _SUFFICIENT_OTHER_KIND
    if best.coverage < wanted:
        return Relevance.WEAK, Answerability.PARTIAL
    return Relevance.STRONG, Answerability.SUFFICIENT


def _open(evidence: Evidence, relevance: Relevance) -> GradedEvidence | None:
    state = openness(evidence)
    language = evidence.language
    if state.scopes:
        labels = [scope.label for scope in state.scopes]
        return _graded(
            relevance,
            Answerability.SUFFICIENT,
            route=Route.SCOPE_SELECT,
            ambiguity=Ambiguity.MULTIPLE_CANDIDATES,
            reason=wording.open_subject(language, labels),
            confidence=evidence.coverage,
            prompt=wording.which_one(language, labels),
            options=labels,
        )
    if state.unnamed:
        slot = wording.open_condition(language)
        return _graded(
            relevance,
            Answerability.PARTIAL,
            route=Route.CLARIFY,
            ambiguity=Ambiguity.MISSING_SLOT,
            reason=wording.which_case(language),
            confidence=evidence.coverage,
            prompt=wording.which_case(language),
            missing_slots=[slot],
        )
    return None


def _missing(evidence: Evidence) -> list[str]:
    return [term.surface for term in evidence.terms if term.form in evidence.absent]


def _graded(
    relevance: Relevance,
    answerability: Answerability,
    *,
    route: Route,
    reason: str,
    ambiguity: Ambiguity = Ambiguity.NONE,
    confidence: float = 1.0,
    prompt: str = "",
    options: list[str] | None = None,
    missing_slots: list[str] | None = None,
) -> GradedEvidence:
    grade = EvidenceGrade(
        route=route,
        relevance=relevance,
        answerability=answerability,
        ambiguity=ambiguity,
        confidence=round(min(max(confidence, 0.0), 1.0), 3),
        reason=reason,
    )
    return GradedEvidence(grade, prompt=prompt, options=options or [], missing_slots=missing_slots or [])
