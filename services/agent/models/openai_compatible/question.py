"""The fast model of an OpenAI-compatible endpoint: classes questions and rewrites queries."""

from collections.abc import Sequence

from langchain_core.messages import HumanMessage, SystemMessage

from services.agent.models.openai_compatible.structured import StructuredModel
from services.agent.models.openai_compatible.written import WrittenPlan, WrittenRewrite
from services.agent.rag.model_prompts import PLAN, REWRITE, question_message
from services.agent.schemas import (
    Complexity,
    ComplexityPlan,
    EvidenceGrade,
    QueryRewrite,
    RetrievedChunk,
    RewriteMethod,
)
from services.agent.usage import UsageListener


class EndpointQuestionModel:
    """A QuestionModel over HTTP."""

    def __init__(self, model: StructuredModel, *, classify_limit_s: float, rewrite_limit_s: float) -> None:
        self._model = model
        self._classify_limit_s = classify_limit_s
        self._rewrite_limit_s = rewrite_limit_s

    async def plan(self, question: str, *, on_usage: UsageListener | None = None) -> ComplexityPlan:
        written = await self._model.write(
            WrittenPlan,
            [SystemMessage(PLAN), HumanMessage(question_message(question))],
            name="plan",
            what="classing the question",
            limit_s=self._classify_limit_s,
            on_usage=on_usage,
        )
        complexity = Complexity(written.complexity)
        parts = written.sub_questions if complexity is Complexity.COMPLEX else []
        return ComplexityPlan(complexity=complexity, reason=written.reason, sub_questions=parts)

    async def rewrite(
        self,
        question: str,
        *,
        chunks: Sequence[RetrievedChunk],
        grade: EvidenceGrade,
        on_usage: UsageListener | None = None,
    ) -> QueryRewrite:
        written = await self._model.write(
            WrittenRewrite,
            [SystemMessage(REWRITE), HumanMessage(question_message(question, chunks=chunks, judged=grade.reason))],
            name="rewrite",
            what="rewriting the query",
            limit_s=self._rewrite_limit_s,
            on_usage=on_usage,
        )
        method = RewriteMethod(written.method)
        return QueryRewrite(
            method=method,
            rewritten_query=written.rewritten_query,
            step_back_question=written.step_back_question if method is RewriteMethod.STEP_BACK else "",
            hyde_document=written.hyde_document if method is RewriteMethod.HYDE else "",
        )
