"""Joins what the sub-agents of a complex question found into one piece of evidence, or one question back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.agent.language import Language
from services.agent.models.base import GradedEvidence
from services.agent.rag.decision import ANSWER, ANSWER_PARTIALLY, CLARIFY, NO_KNOWLEDGE, SCOPE_SELECT, Decision
from services.agent.rag.state import Finding
from services.agent.rag.wording import joined_prompts, parts_covered
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    EvidenceGrade,
    Relevance,
    RetrievalStatus,
    RetrievedChunk,
    Route,
)


@dataclass(frozen=True, slots=True)
class Synthesis:
    decision: Decision
    chunks: list[RetrievedChunk]
    graded: GradedEvidence
    uncovered: list[str]
    """Sub-questions without evidence."""


def synthesize(findings: Sequence[Finding], *, language: Language) -> Synthesis | None:
    """The joined result of the findings, given in planned order; None where only failures are left to tell of.

    An answer is PARTIAL where any part of it is, or where a sub-question got none. Nothing is called
    unknown while the search for a part of it failed.
    """
    answered = [finding for finding in findings if finding.decision and finding.decision.route is Route.ANSWER]
    asking = [finding for finding in findings if finding.decision in (SCOPE_SELECT, CLARIFY)]
    uncovered = [finding.question for finding in findings if finding not in answered]
    chunks = _joined_chunks(answered)
    reason = parts_covered(language, covered=len(answered), total=len(findings), chunks=len(chunks))
    if answered:
        whole = not uncovered and all(finding.decision == ANSWER for finding in answered)
        decision = ANSWER if whole else ANSWER_PARTIALLY
        graded = GradedEvidence(grade=_joined_grade(answered, decision, reason=reason))
        return Synthesis(decision, chunks, graded, uncovered)
    if asking:
        decision, graded = _joined_question(asking, language=language, reason=reason)
        return Synthesis(decision, [], graded, uncovered)
    if any(finding.decision is None for finding in findings):
        return None
    graded = GradedEvidence(grade=_joined_grade(findings, NO_KNOWLEDGE, reason=reason))
    return Synthesis(NO_KNOWLEDGE, [], graded, uncovered)


def _joined_chunks(findings: Iterable[Finding]) -> list[RetrievedChunk]:
    """Best first, each passage once: of two copies the one with the higher score."""
    ranked = sorted((chunk for finding in findings for chunk in finding.chunks), key=_score, reverse=True)
    joined: list[RetrievedChunk] = []
    ids: set[str] = set()
    texts: set[str] = set()
    for chunk in ranked:
        text = " ".join(chunk.text.split())
        if text in texts or (chunk.chunk_id and chunk.chunk_id in ids):
            continue
        ids.add(chunk.chunk_id)
        texts.add(text)
        joined.append(chunk)
    return joined


def _score(chunk: RetrievedChunk) -> tuple[float, float]:
    """Orders by the reranker's word where it spoke, then by recall."""
    return (
        float("-inf") if chunk.rerank_score is None else chunk.rerank_score,
        float("-inf") if chunk.score is None else chunk.score,
    )


def _joined_question(asking: Sequence[Finding], *, language: Language, reason: str) -> tuple[Decision, GradedEvidence]:
    in_order = sorted(asking, key=lambda finding: finding.decision != SCOPE_SELECT)
    decision = in_order[0].decision or CLARIFY
    graded = [finding.graded for finding in in_order if finding.graded]
    prompts = _distinct(part.prompt for part in graded)
    joined = GradedEvidence(
        grade=_joined_grade(in_order, decision, reason=reason),
        prompt=joined_prompts(language, prompts) if prompts else "",
        options=_distinct(option for part in graded for option in part.options),
        missing_slots=_distinct(slot for part in graded for slot in part.missing_slots),
    )
    return decision, joined


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


_AMBIGUITIES = {
    RetrievalStatus.NEEDS_SCOPE_SELECTION: Ambiguity.MULTIPLE_CANDIDATES,
    RetrievalStatus.NEEDS_CLARIFICATION: Ambiguity.MISSING_SLOT,
}


def _joined_grade(findings: Iterable[Finding], decision: Decision, *, reason: str) -> EvidenceGrade:
    """The whole is as relevant as its best part, and as sure as its least sure one."""
    grades = [finding.graded.grade for finding in findings if finding.graded]
    relevances = [grade.relevance for grade in grades if grade.relevance]
    confidences = [grade.confidence for grade in grades if grade.confidence is not None]
    answerability = {
        RetrievalStatus.ANSWERABLE: Answerability.SUFFICIENT,
        RetrievalStatus.PARTIAL: Answerability.PARTIAL,
    }.get(decision.status, Answerability.NONE)
    return EvidenceGrade(
        route=decision.route,
        status=decision.status,
        relevance=max(relevances, key=list(Relevance).index, default=Relevance.NONE),
        answerability=answerability,
        ambiguity=_AMBIGUITIES.get(decision.status, Ambiguity.NONE),
        confidence=min(confidences, default=None),
        reason=reason,
    )
