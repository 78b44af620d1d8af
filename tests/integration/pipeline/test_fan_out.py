"""Questions that are several: split, searched side by side, joined."""

import pytest

from services.agent.errors import KnowledgeUnavailable
from services.agent.models.base import GradedEvidence
from services.agent.schemas import (
    Answerability,
    Complexity,
    ComplexityPlan,
    HitlKind,
    Relevance,
    RetrievalStage,
    RetrievalStatus,
    Route,
)
from tests.integration.pipeline.scripted import (
    ANSWERS,
    FAILED,
    IRRELEVANT,
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
    grade,
    which_product,
    which_version,
)

QUESTION = "What is the range of Alder, and how long does Birch run?"
ALDER, BIRCH = "What is the range of Alder?", "How long does Birch run?"


def pipeline_for(
    grades: dict[str, GradedEvidence], search: ScriptedSearch | None = None, plan: ComplexityPlan | None = None
) -> Pipeline:
    return Pipeline(
        search or ScriptedSearch({ALDER: found(chunk("Alder: 80 m")), BIRCH: found(chunk("Birch: 5 years"))}),
        ScriptedQuestions(planned=plan or complex_plan(*grades)),
        ScriptedGrades(grades),
    )


async def test_each_part_is_searched_and_the_evidence_joined() -> None:
    pipeline = pipeline_for({ALDER: ANSWERS, BIRCH: ANSWERS})
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is RetrievalStatus.ANSWERABLE
    assert {piece.text for piece in outcome.chunks} == {"Alder: 80 m", "Birch: 5 years"}
    assert sorted(pipeline.search.queries) == sorted([ALDER, BIRCH])
    trace = outcome.trace
    assert trace.retrieval_stage is RetrievalStage.SYNTHESIS and trace.retrieval is None
    assert trace.complexity is not None
    assert (trace.complexity.sub_agent_count, trace.complexity.synthesis_merged_count) == (2, 2)
    assert trace.complexity.sub_questions == [ALDER, BIRCH]


async def test_four_parts_run_and_their_traces_stand_in_planned_order() -> None:
    parts = [f"part {number}" for number in range(1, 5)]
    pipeline = pipeline_for(dict.fromkeys(parts, ANSWERS))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert [sub_trace.query for sub_trace in outcome.trace.sub_traces] == parts
    assert all(sub_trace.retrieval_stage is RetrievalStage.INITIAL for sub_trace in outcome.trace.sub_traces)


SUB_AGENT_ROWS = [
    pytest.param(PARTIAL, RetrievalStatus.PARTIAL, id="PARTIAL"),
    pytest.param(grade(relevance=Relevance.WEAK), RetrievalStatus.PARTIAL, id="SUFFICIENT, not STRONG"),
    pytest.param(
        grade(Route.REWRITE, answerability=Answerability.PARTIAL), RetrievalStatus.PARTIAL, id="REWRITE and PARTIAL"
    ),
    pytest.param(WANTS_REWRITE, RetrievalStatus.NO_KNOWLEDGE, id="REWRITE"),
    pytest.param(IRRELEVANT, RetrievalStatus.NO_KNOWLEDGE, id="relevance NONE"),
    pytest.param(which_version(), RetrievalStatus.NEEDS_CLARIFICATION, id="MISSING_SLOT"),
    pytest.param(which_product("A", "B"), RetrievalStatus.NEEDS_SCOPE_SELECTION, id="MULTIPLE_CANDIDATES"),
    pytest.param(ANSWERS, RetrievalStatus.ANSWERABLE, id="ANSWER"),
]


@pytest.mark.parametrize(("graded", "status"), SUB_AGENT_ROWS)
async def test_a_sub_agent_takes_what_it_has_and_never_rewrites(
    graded: GradedEvidence, status: RetrievalStatus
) -> None:
    pipeline = pipeline_for({ALDER: graded, BIRCH: graded})
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is status
    assert pipeline.questions.rewrites == []
    for sub_trace in outcome.trace.sub_traces:
        assert sub_trace.evidence is not None and sub_trace.evidence.status is status


async def test_one_part_that_is_partial_makes_the_whole_partial() -> None:
    outcome = await pipeline_for({ALDER: ANSWERS, BIRCH: PARTIAL}).graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is RetrievalStatus.PARTIAL
    assert len(outcome.chunks) == 2 and outcome.uncovered == []


async def test_a_part_without_evidence_is_named_and_makes_the_whole_partial() -> None:
    outcome = await pipeline_for({ALDER: ANSWERS, BIRCH: IRRELEVANT}).graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is RetrievalStatus.PARTIAL
    assert outcome.uncovered == [BIRCH]
    assert [piece.text for piece in outcome.chunks] == ["Alder: 80 m"]


async def test_the_same_passage_found_twice_is_kept_once_with_the_higher_score() -> None:
    search = ScriptedSearch(
        {
            ALDER: found(chunk("shared", chunk_id="c1", score=0.4), chunk("same words", chunk_id="c2", score=0.3)),
            BIRCH: found(chunk("shared", chunk_id="c1", score=0.9), chunk("same  words", chunk_id="c3", score=0.6)),
        }
    )
    outcome = await pipeline_for({ALDER: ANSWERS, BIRCH: ANSWERS}, search).graph.run(context_for(QUESTION), QUESTION)
    assert [(piece.chunk_id, piece.score) for piece in outcome.chunks] == [("c1", 0.9), ("c3", 0.6)]


async def test_parts_that_all_ask_back_ask_once_choices_before_conditions() -> None:
    plan = complex_plan(ALDER, BIRCH, "third")
    grades = {ALDER: which_version(), BIRCH: which_product("Birch 1", "Birch 2"), "third": which_product("Birch 2")}
    context = context_for(QUESTION)
    outcome = await pipeline_for(grades, plan=plan).graph.run(context, QUESTION)
    asked = outcome.hitl
    assert asked is not None and asked.kind is HitlKind.SCOPE_SELECT
    assert asked.prompt.index("Which product?") < asked.prompt.index("Which version?")
    assert asked.prompt.count("Which product?") == 1
    assert asked.options == ["Birch 1", "Birch 2"]
    assert asked.resume_state.question == QUESTION
    assert asked.resume_state.complexity is Complexity.COMPLEX
    assert asked.resume_state.sub_questions == [ALDER, BIRCH, "third"]
    assert outcome.chunks == [] and outcome.trace.retrieved_chunks == []


async def test_evidence_of_one_part_comes_before_the_question_of_another() -> None:
    outcome = await pipeline_for({ALDER: which_version(), BIRCH: ANSWERS}).graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is RetrievalStatus.PARTIAL
    assert outcome.hitl is None and outcome.uncovered == [ALDER]


async def test_a_failed_search_of_one_part_is_told_in_its_trace_and_the_others_go_on() -> None:
    search = ScriptedSearch({ALDER: FAILED, BIRCH: found(chunk("Birch: 5 years"))})
    outcome = await pipeline_for({ALDER: ANSWERS, BIRCH: ANSWERS}, search).graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is RetrievalStatus.PARTIAL and outcome.uncovered == [ALDER]
    failed = outcome.trace.sub_traces[0]
    assert failed.retrieval is not None and failed.retrieval.mode == "failed"
    assert failed.retrieval.error and failed.evidence is None


async def test_all_searches_failing_is_an_error() -> None:
    pipeline = pipeline_for({ALDER: ANSWERS, BIRCH: ANSWERS}, ScriptedSearch(otherwise=FAILED))
    context = context_for(QUESTION)
    with pytest.raises(KnowledgeUnavailable):
        await pipeline.graph.run(context, QUESTION)
    trace = context.peek_rag_trace()
    assert trace is not None and len(trace.sub_traces) == 2


async def test_a_failure_beside_an_empty_part_is_never_called_nothing_known() -> None:
    search = ScriptedSearch({ALDER: FAILED, BIRCH: found()})
    with pytest.raises(KnowledgeUnavailable):
        await pipeline_for({ALDER: ANSWERS, BIRCH: ANSWERS}, search).graph.run(context_for(QUESTION), QUESTION)


@pytest.mark.parametrize("parts", [[], ["only one"], ["twice", " twice "]])
async def test_a_plan_with_fewer_than_two_parts_is_one_question(parts: list[str]) -> None:
    pipeline = Pipeline(questions=ScriptedQuestions(planned=complex_plan(*parts)))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.trace.complexity is not None
    assert outcome.trace.complexity.complexity is Complexity.SIMPLE
    assert outcome.trace.sub_traces == [] and pipeline.search.queries == [QUESTION]
