"""What the pipeline does when a port fails, and when it is cancelled."""

import asyncio
from collections.abc import Sequence

import pytest

from services.agent.errors import CollectionNotFound, EncoderMismatch, KnowledgeUnavailable, ModelMalformed
from services.agent.knowledge.base import Retrieval, StageListener
from services.agent.models.base import GradedEvidence
from services.agent.rag.graph import build_rag_graph
from services.agent.schemas import Complexity, QueryRewrite, RetrievalStatus, RetrievedChunk, RewriteMethod
from services.agent.usage import UsageListener
from services.runtime.errors import Kind, ServiceError
from tests.integration.pipeline.scripted import (
    ANSWERS,
    FAILED,
    PARTIAL,
    WANTS_REWRITE,
    Pipeline,
    ScriptedGrades,
    ScriptedQuestions,
    ScriptedSearch,
    chunk,
    complex_plan,
    context_for,
    found,
)

QUESTION = "What changed in firmware 4, and why?"


class ModelGone(ServiceError):
    kind = Kind.UNAVAILABLE
    reason = "MODEL_UNAVAILABLE"


class ModelBusy(ServiceError):
    kind = Kind.RESOURCE_EXHAUSTED
    reason = "MODEL_RATE_LIMITED"


class ModelRefused(ServiceError):
    kind = Kind.FAILED_PRECONDITION
    reason = "MODEL_REFUSED"


LASTING = [ModelGone("gone"), ModelBusy("busy"), ModelRefused("no")]


async def test_a_search_that_failed_altogether_is_an_error_and_its_trace_is_kept() -> None:
    context = context_for(QUESTION)
    with pytest.raises(KnowledgeUnavailable):
        await Pipeline(ScriptedSearch(otherwise=FAILED)).graph.run(context, QUESTION)
    trace = context.peek_rag_trace()
    assert trace is not None and trace.retrieval is not None
    assert trace.retrieval.mode == "failed" and trace.retrieval.error


async def test_a_search_that_fails_after_a_rewrite_is_an_error_too() -> None:
    search = ScriptedSearch({QUESTION: found(chunk("first"))}, otherwise=FAILED)
    context = context_for(QUESTION)
    with pytest.raises(KnowledgeUnavailable):
        await Pipeline(search, grades=ScriptedGrades([PARTIAL])).graph.run(context, QUESTION)
    trace = context.peek_rag_trace()
    assert trace is not None and [piece.text for piece in trace.initial_retrieved_chunks] == ["first"]
    assert trace.retrieved_chunks == []


async def test_a_plan_that_cannot_be_read_makes_it_one_question() -> None:
    pipeline = Pipeline(questions=ScriptedQuestions(planned=ModelMalformed()))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is RetrievalStatus.ANSWERABLE
    assert outcome.trace.complexity is not None
    assert outcome.trace.complexity.complexity is Complexity.SIMPLE
    assert "MODEL_MALFORMED" in outcome.trace.complexity.reason


@pytest.mark.parametrize("error", LASTING, ids=lambda error: error.reason)
async def test_a_planner_out_of_reach_ends_the_run(error: ServiceError) -> None:
    with pytest.raises(type(error)):
        await Pipeline(questions=ScriptedQuestions(planned=error)).graph.run(context_for(QUESTION), QUESTION)


@pytest.mark.parametrize("error", LASTING, ids=lambda error: error.reason)
async def test_a_rewriter_out_of_reach_ends_the_run(error: ServiceError) -> None:
    pipeline = Pipeline(questions=ScriptedQuestions(rewritten=error), grades=ScriptedGrades([PARTIAL]))
    with pytest.raises(type(error)):
        await pipeline.graph.run(context_for(QUESTION), QUESTION)


USELESS = [
    pytest.param(ModelMalformed(), id="malformed"),
    pytest.param(QueryRewrite(method=RewriteMethod.STEP_BACK, rewritten_query=" "), id="blank"),
    pytest.param(QueryRewrite(method=RewriteMethod.STEP_BACK, rewritten_query=QUESTION.upper()), id="unchanged"),
]


@pytest.mark.parametrize("rewritten", USELESS)
@pytest.mark.parametrize(
    ("graded", "status"),
    [(PARTIAL, RetrievalStatus.NEEDS_CLARIFICATION), (WANTS_REWRITE, RetrievalStatus.NO_KNOWLEDGE)],
)
async def test_a_useless_rewrite_counts_as_done_and_is_not_searched(
    rewritten: QueryRewrite | Exception, graded: GradedEvidence, status: RetrievalStatus
) -> None:
    pipeline = Pipeline(questions=ScriptedQuestions(rewritten=rewritten), grades=ScriptedGrades([graded]))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is status
    assert pipeline.search.queries == [QUESTION]
    assert outcome.trace.rewrite is None


@pytest.mark.parametrize("error", [*LASTING, ModelMalformed()], ids=lambda error: error.reason)
@pytest.mark.parametrize("parts", [[], ["one", "two"]], ids=["simple", "complex"])
async def test_a_grader_that_fails_ends_the_run(error: ServiceError, parts: list[str]) -> None:
    def judge(_: str, __: Sequence[RetrievedChunk]) -> GradedEvidence:
        raise error

    pipeline = Pipeline(questions=ScriptedQuestions(planned=complex_plan(*parts)), grades=ScriptedGrades(judge))
    with pytest.raises(type(error)):
        await pipeline.graph.run(context_for(QUESTION), QUESTION)


class RefusingSearch:
    def __init__(self, error: ServiceError) -> None:
        self._error = error

    async def retrieve(
        self, query: str, *, collection: str, top_k: int | None = None, on_stage: StageListener | None = None
    ) -> Retrieval:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [
        CollectionNotFound("manuals"),
        EncoderMismatch(collection="manuals", encoder="one", configured_encoder="other"),
    ],
    ids=lambda error: error.reason,
)
@pytest.mark.parametrize("parts", [[], ["one", "two"]], ids=["simple", "complex"])
async def test_what_the_index_refuses_reaches_the_caller_as_it_is(error: ServiceError, parts: list[str]) -> None:
    questions = ScriptedQuestions(planned=complex_plan(*parts))
    graph = build_rag_graph(RefusingSearch(error), questions, ScriptedGrades())
    with pytest.raises(type(error)) as raised:
        await graph.run(context_for(QUESTION), QUESTION)
    assert raised.value is error


class HangingGrades:
    """Never answers; tells when it was asked, and when it was let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        self.let_go = 0

    async def grade(
        self, question: str, *, chunks: Sequence[RetrievedChunk], on_usage: UsageListener | None = None
    ) -> GradedEvidence:
        self.asked.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.let_go += 1
        return ANSWERS


@pytest.mark.parametrize("parts", [[], ["one", "two", "three"]], ids=["simple", "complex"])
async def test_cancelling_the_request_cancels_every_model_call_under_way(parts: list[str]) -> None:
    grades = HangingGrades()
    graph = build_rag_graph(ScriptedSearch(), ScriptedQuestions(planned=complex_plan(*parts)), grades)
    context = context_for(QUESTION)
    run = asyncio.create_task(graph.run(context, QUESTION))
    calls = len(parts) or 1
    for _ in range(calls):
        await asyncio.wait_for(grades.asked.acquire(), 5)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, 5)
    assert grades.let_go == calls
    assert context.peek_rag_trace() is None
