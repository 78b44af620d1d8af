"""The grading model of an OpenAI-compatible endpoint."""

from collections.abc import Sequence

from langchain_core.messages import HumanMessage, SystemMessage

from services.agent.language import language_of
from services.agent.models.base import GradedEvidence
from services.agent.models.openai_compatible.structured import StructuredModel
from services.agent.models.openai_compatible.written import WrittenGrade
from services.agent.rag.model_prompts import GRADE, question_message
from services.agent.rag.wording import nothing_found
from services.agent.schemas import Ambiguity, Answerability, EvidenceGrade, Relevance, RetrievedChunk, Route
from services.agent.usage import UsageListener


class EndpointGradeModel:
    """A GradeModel over HTTP."""

    def __init__(self, model: StructuredModel, *, limit_s: float) -> None:
        self._model = model
        self._limit_s = limit_s

    async def grade(
        self, question: str, *, chunks: Sequence[RetrievedChunk], on_usage: UsageListener | None = None
    ) -> GradedEvidence:
        if not chunks:
            return _nothing(question)
        written = await self._model.write(
            WrittenGrade,
            [SystemMessage(GRADE), HumanMessage(question_message(question, chunks=chunks))],
            name="grade",
            what="grading the evidence",
            limit_s=self._limit_s,
            on_usage=on_usage,
        )
        ambiguity = Ambiguity(written.ambiguity)
        grade = EvidenceGrade(
            route=Route(written.route),
            relevance=Relevance(written.relevance),
            answerability=Answerability(written.answerability),
            ambiguity=ambiguity,
            confidence=written.confidence,
            reason=written.reason,
        )
        is_open = ambiguity is not Ambiguity.NONE
        return GradedEvidence(
            grade=grade,
            prompt=written.prompt,
            options=written.options if is_open else [],
            missing_slots=written.missing_slots if is_open else [],
        )


def _nothing(question: str) -> GradedEvidence:
    return GradedEvidence(
        grade=EvidenceGrade(
            route=Route.NO_KNOWLEDGE,
            relevance=Relevance.NONE,
            answerability=Answerability.NONE,
            ambiguity=Ambiguity.NONE,
            reason=nothing_found(language_of(question)),
        )
    )
