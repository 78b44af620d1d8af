"""The built-in grader: no model, but a measure of how much of the question the evidence covers, and how openly."""

import asyncio
from collections.abc import Sequence

from services.agent.models.base import GradedEvidence
from services.agent.models.extractive import wording
from services.agent.models.extractive.answer import select
from services.agent.models.extractive.asking import Asking
from services.agent.models.extractive.evidence import ON_ASPECT, Evidence, Passage
from services.agent.models.extractive.question import without_answer
from services.agent.models.extractive.scopes import openness
from services.agent.models.extractive.weighing import weigh
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    EvidenceGrade,
    Relevance,
    RetrievedChunk,
    Route,
)
from services.agent.usage import UsageListener

# Shares of the question's weight that one sentence, with its headings, has to cover. Above half of it the
# sentence speaks of what is asked, though a word or two may be put differently; below a quarter it shares
# no more than a word with it. Where the kind of answer that is asked for is missing, much more is wanted.
_SUFFICIENT = 0.58
_PARTIAL = 0.5
_RELATED = 0.25
# A sentence that has the question's names and hardly a word of what is asked about them is no answer; one that
# has no more than two of three such words may answer something else about the same.
_ASPECT = 0.3
_SUFFICIENT_ASPECT = 0.68
_SUFFICIENT_OTHER_KIND = 0.8
_SHOWN = 2
# Asked for a figure, a sentence without one is no answer, and so is one without a day for something that happened.
_MEASURED = frozenset((Asking.NUMBER, Asking.PRICE, Asking.DURATION, Asking.FREQUENCY))
_NEVER_WITHOUT = _MEASURED | {Asking.EVENT}


class ExtractiveGradeModel:
    """A GradeModel that needs no network and gives the same grade for the same input."""

    async def grade(
        self, question: str, *, chunks: Sequence[RetrievedChunk], on_usage: UsageListener | None = None
    ) -> GradedEvidence:
        # Off the loop: some milliseconds of work, and the dictionary the first time.
        return await asyncio.to_thread(grade, question, list(chunks))


def grade(question: str, chunks: Sequence[RetrievedChunk]) -> GradedEvidence:
    evidence = weigh(question, chunks)
    language = evidence.language
    best = evidence.best
    if best is None:
        reason = wording.off_subject(language, _missing(evidence)) if chunks else wording.no_evidence(language)
        return _graded(Relevance.NONE, Answerability.NONE, route=Route.NO_KNOWLEDGE, reason=reason)
    relevance, answerability = _judge(evidence, best)
    if evidence.unknown_answer and (still_open := _still_open(question, chunks)) is not None:
        return still_open
    if answerability is Answerability.SUFFICIENT and (open_grade := _open(evidence, relevance)) is not None:
        return open_grade
    if answerability is Answerability.SUFFICIENT:
        reason = wording.covered(language, best.coverage, best.filename)
        return _graded(relevance, answerability, route=Route.ANSWER, reason=reason, confidence=best.coverage)
    if answerability is Answerability.NONE:
        route = Route.NO_KNOWLEDGE if relevance is Relevance.NONE else Route.REWRITE
        reason = wording.off_subject(language, _missing(evidence))
        return _graded(relevance, answerability, route=route, reason=reason, confidence=1 - best.coverage)
    return _graded(
        relevance,
        answerability,
        route=Route.REWRITE,
        reason=wording.covered(language, best.coverage, best.filename),
        confidence=best.coverage,
        prompt=wording.nearest(language, _nearest(evidence)),
    )


def _judge(evidence: Evidence, best: Passage) -> tuple[Relevance, Answerability]:
    """What the sentence that would be quoted is worth: not the best that can be said of some other one."""
    on_aspect = best.aspect >= _SUFFICIENT_ASPECT
    if best.coverage < _RELATED and not on_aspect:
        return Relevance.NONE, Answerability.NONE
    if best.aspect < _ASPECT or best.is_elsewhere or (best.coverage < _PARTIAL and best.aspect < ON_ASPECT):
        return Relevance.WEAK, Answerability.NONE
    if best.lacks:
        # Another product's answer is none: a name or number that nothing mentions leaves it open at best.
        return Relevance.WEAK, Answerability.PARTIAL if on_aspect else Answerability.NONE
    is_complete = best.coverage >= _SUFFICIENT and on_aspect
    if evidence.asking in _MEASURED and not best.fits and evidence.has_one_word:
        # One word in common, and no figure: "free of charge" tells nothing of how long to charge.
        return Relevance.WEAK, Answerability.NONE
    is_of_kind = best.fits or (evidence.asking not in _NEVER_WITHOUT and best.coverage >= _SUFFICIENT_OTHER_KIND)
    # The price of something that is done to a thing is not the price of the thing.
    is_of_subject = best.is_headed or not evidence.asks_kind_alone
    if not is_complete or not is_of_kind or not is_of_subject:
        return Relevance.WEAK, Answerability.PARTIAL
    return Relevance.STRONG, Answerability.SUFFICIENT


def _still_open(question: str, chunks: Sequence[RetrievedChunk]) -> GradedEvidence | None:
    """The choice once more, where the answer to it picked nothing that the evidence has."""
    alone = without_answer(question)
    if alone == question:
        return None
    evidence = weigh(alone, chunks)
    best = evidence.best
    if best is None or _judge(evidence, best)[1] is not Answerability.SUFFICIENT:
        return None
    graded = _open(evidence, Relevance.STRONG)
    return graded if graded is not None and graded.options else None


def _nearest(evidence: Evidence) -> list[tuple[str, str]]:
    """The sentences to show where none answers, each with its document."""
    return [
        (passage.sentence.text, passage.filename)
        for place, passage in enumerate(select(evidence, limit=_SHOWN))
        if place == 0 or not passage.sentence.is_item
    ]


def _open(evidence: Evidence, relevance: Relevance) -> GradedEvidence | None:
    if evidence.asks_for_name_alone:
        return None
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
