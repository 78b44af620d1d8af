"""The pipeline's three ports, answering as a test says; each remembers what it was asked."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.agent.errors import CollectionNotFound
from services.agent.knowledge.base import Retrieval, StageListener
from services.agent.models.base import GradedEvidence
from services.agent.rag.graph import RagGraph, build_rag_graph
from services.agent.request_context import ChatRequestContext
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    AutoMergeStats,
    Complexity,
    ComplexityPlan,
    EvidenceGrade,
    QueryRewrite,
    Relevance,
    RetrievalStats,
    RetrievedChunk,
    RewriteMethod,
    Route,
    StageTiming,
)
from services.agent.usage import UsageListener

SIMPLE = ComplexityPlan(complexity=Complexity.SIMPLE, reason="one thing")


def chunk(text: str, *, chunk_id: str = "", score: float = 0.5, filename: str = "cedar-manual.md") -> RetrievedChunk:
    return RetrievedChunk(filename=filename, text=text, score=score, chunk_id=chunk_id or text)


def found(*chunks: RetrievedChunk) -> Retrieval:
    return Retrieval(
        chunks=list(chunks),
        stats=RetrievalStats(mode="hybrid", recall_count=24, top_k=8, empty=not chunks),
        auto_merge=AutoMergeStats(enabled=True, applied=True, replaced_chunks=2),
        timings=[
            StageTiming(stage="retrieve", start_ms=0, elapsed_ms=3),
            StageTiming(stage="auto_merge", start_ms=3, elapsed_ms=1),
        ],
    )


FAILED = Retrieval(chunks=[], stats=RetrievalStats(mode="failed", error="dense: refused; sparse: refused", empty=True))


def grade(
    route: Route = Route.ANSWER,
    relevance: Relevance = Relevance.STRONG,
    answerability: Answerability = Answerability.SUFFICIENT,
    ambiguity: Ambiguity = Ambiguity.NONE,
    *,
    prompt: str = "",
    options: Sequence[str] = (),
    missing_slots: Sequence[str] = (),
) -> GradedEvidence:
    evidence = EvidenceGrade(
        route=route, relevance=relevance, answerability=answerability, ambiguity=ambiguity, confidence=0.5
    )
    return GradedEvidence(grade=evidence, prompt=prompt, options=list(options), missing_slots=list(missing_slots))


ANSWERS = grade()
PARTIAL = grade(answerability=Answerability.PARTIAL)
WANTS_REWRITE = grade(Route.REWRITE, Relevance.WEAK, Answerability.NONE)
IRRELEVANT = grade(relevance=Relevance.NONE)


def which_product(*options: str) -> GradedEvidence:
    return grade(Route.SCOPE_SELECT, ambiguity=Ambiguity.MULTIPLE_CANDIDATES, prompt="Which product?", options=options)


def which_version() -> GradedEvidence:
    return grade(Route.CLARIFY, ambiguity=Ambiguity.MISSING_SLOT, prompt="Which version?", missing_slots=["version"])


@dataclass
class ScriptedSearch:
    """Finds by the exact query; a query that is not in the script finds `otherwise`."""

    script: dict[str, Retrieval] = field(default_factory=dict)
    otherwise: Retrieval = field(default_factory=lambda: found(chunk("Cedar samples every 10 s.")))
    queries: list[str] = field(default_factory=list)
    collections: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    """Collections that are not there."""

    async def retrieve(
        self, query: str, *, collection: str, top_k: int | None = None, on_stage: StageListener | None = None
    ) -> Retrieval:
        self.queries.append(query)
        self.collections.append(collection)
        if collection in self.missing:
            raise CollectionNotFound(collection)
        retrieval = self.script.get(query, self.otherwise)
        if on_stage:
            on_stage("retrieve")
            if retrieval.stats.mode != "failed":
                on_stage("auto_merge")
                on_stage("rerank")
        await asyncio.sleep(0)
        return retrieval


@dataclass
class ScriptedQuestions:
    planned: ComplexityPlan | Exception = field(default_factory=lambda: SIMPLE)
    rewritten: QueryRewrite | Exception = field(
        default_factory=lambda: QueryRewrite(
            method=RewriteMethod.STEP_BACK, rewritten_query="sampling in general", step_back_question="How is it?"
        )
    )
    plans: list[str] = field(default_factory=list)
    rewrites: list[str] = field(default_factory=list)

    async def plan(self, question: str, *, on_usage: UsageListener | None = None) -> ComplexityPlan:
        self.plans.append(question)
        if isinstance(self.planned, Exception):
            raise self.planned
        return self.planned

    async def rewrite(
        self,
        question: str,
        *,
        chunks: Sequence[RetrievedChunk],
        grade: EvidenceGrade,
        on_usage: UsageListener | None = None,
    ) -> QueryRewrite:
        self.rewrites.append(question)
        if isinstance(self.rewritten, Exception):
            raise self.rewritten
        return self.rewritten


Judge = Callable[[str, Sequence[RetrievedChunk]], GradedEvidence]


@dataclass
class ScriptedGrades:
    """Gives the grades in turn, the last one for ever; or by the question; or as a function says."""

    script: Sequence[GradedEvidence] | dict[str, GradedEvidence] | Judge = (ANSWERS,)
    questions: list[str] = field(default_factory=list)

    async def grade(
        self, question: str, *, chunks: Sequence[RetrievedChunk], on_usage: UsageListener | None = None
    ) -> GradedEvidence:
        self.questions.append(question)
        await asyncio.sleep(0)
        if callable(self.script):
            return self.script(question, chunks)
        if isinstance(self.script, dict):
            return self.script[question]
        return self.script[min(len(self.questions), len(self.script)) - 1]


@dataclass
class Pipeline:
    search: ScriptedSearch = field(default_factory=ScriptedSearch)
    questions: ScriptedQuestions = field(default_factory=ScriptedQuestions)
    grades: ScriptedGrades = field(default_factory=ScriptedGrades)

    @property
    def graph(self) -> RagGraph:
        return build_rag_graph(self.search, self.questions, self.grades)


def context_for(question: str, *, collection: str = "default") -> ChatRequestContext:
    return ChatRequestContext.for_stream(user_id="u1", session_id="s1", question=question, collection=collection)


def complex_plan(*sub_questions: str) -> ComplexityPlan:
    return ComplexityPlan(complexity=Complexity.COMPLEX, reason="several", sub_questions=list(sub_questions))
