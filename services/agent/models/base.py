"""What the pipeline asks of its models, whoever answers: an OpenAI-compatible endpoint or the built-in one.

The answering model itself is a LangChain chat model (see `services.agent.runtime`); these are the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.agent.schemas import ComplexityPlan, EvidenceGrade, QueryRewrite, RetrievedChunk
from services.agent.usage import UsageListener


@dataclass(frozen=True, slots=True)
class GradedEvidence:
    """A grade, and what to ask the user where the evidence leaves it open what is meant.

    `prompt`, `options` and `missing_slots` are filled where `grade.ambiguity` is MISSING_SLOT or
    MULTIPLE_CANDIDATES, in the language of the question; `options` may be empty for a MISSING_SLOT.
    """

    grade: EvidenceGrade
    prompt: str = ""
    options: list[str] = field(default_factory=list)
    missing_slots: list[str] = field(default_factory=list)


class QuestionModel(Protocol):
    """The fast model: classes questions and rewrites queries. Both may be called side by side.

    Raises ServiceError: a model's, or TimeLimit. `on_usage` is told of each call that a model answered.
    """

    async def plan(self, question: str, *, on_usage: UsageListener | None = None) -> ComplexityPlan:
        """Whether the question is one or several; up to four sub-questions, each whole by itself."""
        ...

    async def rewrite(
        self,
        question: str,
        *,
        chunks: Sequence[RetrievedChunk],
        grade: EvidenceGrade,
        on_usage: UsageListener | None = None,
    ) -> QueryRewrite:
        """One better query, by step-back or HyDE, chosen and written in one call.

        `method` and `rewritten_query` are always set; `step_back_question` or `hyde_document` by the method.
        """
        ...


class GradeModel(Protocol):
    """Judges evidence. It answers with a grade for any input, an empty list of chunks included.

    It raises, and tells what it used, as a QuestionModel does.
    """

    async def grade(
        self, question: str, *, chunks: Sequence[RetrievedChunk], on_usage: UsageListener | None = None
    ) -> GradedEvidence: ...
