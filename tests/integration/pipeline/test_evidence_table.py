"""Every row of the evidence table, through the graph."""

import pytest

from services.agent.models.base import GradedEvidence
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    HitlKind,
    QueryRewrite,
    Relevance,
    RetrievalStage,
    RetrievalStatus,
    RewriteMethod,
    Route,
)
from tests.integration.pipeline.scripted import (
    ANSWERS,
    IRRELEVANT,
    PARTIAL,
    WANTS_REWRITE,
    Pipeline,
    ScriptedGrades,
    ScriptedQuestions,
    ScriptedSearch,
    chunk,
    context_for,
    found,
    grade,
    which_product,
    which_version,
)

QUESTION = "How often does it take a sample?"


async def test_nothing_found_is_nothing_known_without_asking_the_grader() -> None:
    pipeline = Pipeline(search=ScriptedSearch(otherwise=found()))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is RetrievalStatus.NO_KNOWLEDGE
    assert outcome.chunks == [] and outcome.hitl is None
    assert pipeline.grades.questions == [] and pipeline.questions.rewrites == []


ROWS = [
    pytest.param(IRRELEVANT, RetrievalStatus.NO_KNOWLEDGE, id="relevance NONE"),
    pytest.param(which_version(), RetrievalStatus.NEEDS_CLARIFICATION, id="MISSING_SLOT"),
    pytest.param(which_product("Cedar", "Alder"), RetrievalStatus.NEEDS_SCOPE_SELECTION, id="MULTIPLE_CANDIDATES"),
    pytest.param(ANSWERS, RetrievalStatus.ANSWERABLE, id="ANSWER, STRONG, SUFFICIENT"),
    pytest.param(grade(Route.CLARIFY), RetrievalStatus.ANSWERABLE, id="otherwise: STRONG, SUFFICIENT"),
    pytest.param(grade(relevance=Relevance.WEAK), RetrievalStatus.NO_KNOWLEDGE, id="otherwise: WEAK"),
    pytest.param(
        grade(Route.NO_KNOWLEDGE, answerability=Answerability.NONE),
        RetrievalStatus.NO_KNOWLEDGE,
        id="otherwise: not answerable",
    ),
]


@pytest.mark.parametrize(("graded", "status"), ROWS)
async def test_evidence_decides_without_a_rewrite(graded: GradedEvidence, status: RetrievalStatus) -> None:
    pipeline = Pipeline(grades=ScriptedGrades([graded]))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is status
    assert outcome.trace.evidence is not None and outcome.trace.evidence.status is status
    assert pipeline.questions.rewrites == [] and pipeline.search.queries == [QUESTION]


REWRITTEN_ROWS = [
    pytest.param(WANTS_REWRITE, ANSWERS, RetrievalStatus.ANSWERABLE, id="REWRITE, then good"),
    pytest.param(PARTIAL, ANSWERS, RetrievalStatus.ANSWERABLE, id="PARTIAL, then good"),
    pytest.param(PARTIAL, PARTIAL, RetrievalStatus.NEEDS_CLARIFICATION, id="PARTIAL after the rewrite"),
    pytest.param(
        WANTS_REWRITE,
        grade(Route.REWRITE, answerability=Answerability.PARTIAL),
        RetrievalStatus.NEEDS_CLARIFICATION,
        id="REWRITE and PARTIAL after the rewrite",
    ),
    pytest.param(WANTS_REWRITE, WANTS_REWRITE, RetrievalStatus.NO_KNOWLEDGE, id="REWRITE after the rewrite"),
    pytest.param(PARTIAL, IRRELEVANT, RetrievalStatus.NO_KNOWLEDGE, id="relevance NONE after the rewrite"),
    pytest.param(
        PARTIAL, which_product("A", "B"), RetrievalStatus.NEEDS_SCOPE_SELECTION, id="ambiguous after the rewrite"
    ),
]


@pytest.mark.parametrize(("first", "second", "status"), REWRITTEN_ROWS)
async def test_a_query_is_rewritten_once_and_then_decided(
    first: GradedEvidence, second: GradedEvidence, status: RetrievalStatus
) -> None:
    pipeline = Pipeline(grades=ScriptedGrades([first, second]))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.status is status
    assert pipeline.questions.rewrites == [QUESTION]
    assert pipeline.search.queries == [QUESTION, "sampling in general"]
    assert pipeline.grades.questions == [QUESTION, QUESTION]
    assert outcome.trace.retrieval_stage is RetrievalStage.REWRITTEN


async def test_an_answer_rests_on_the_last_evidence_and_the_trace_keeps_both() -> None:
    first, second = chunk("first"), chunk("second")
    search = ScriptedSearch({QUESTION: found(first), "sampling in general": found(second)})
    pipeline = Pipeline(search, grades=ScriptedGrades([PARTIAL, ANSWERS]))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert outcome.chunks == outcome.trace.retrieved_chunks == [second]
    assert outcome.trace.initial_retrieved_chunks == [first]
    assert outcome.trace.rewrite_retrieved_chunks == [second]
    assert outcome.trace.rewrite is not None and outcome.trace.rewrite.method is RewriteMethod.STEP_BACK


async def test_a_hypothetical_document_aids_the_search_and_is_no_evidence() -> None:
    hyde = QueryRewrite(
        method=RewriteMethod.HYDE,
        rewritten_query="sampling: It samples each minute.",
        hyde_document="It samples each minute.",
    )
    pipeline = Pipeline(questions=ScriptedQuestions(rewritten=hyde), grades=ScriptedGrades([PARTIAL, ANSWERS]))
    outcome = await pipeline.graph.run(context_for(QUESTION), QUESTION)
    assert pipeline.search.queries[1] == "sampling: It samples each minute."
    assert outcome.trace.rewrite == hyde
    assert all("each minute" not in piece.text for piece in outcome.chunks)


async def test_asking_back_puts_the_evidence_out_of_reach_and_keeps_what_it_takes_to_go_on() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([which_product("Cedar", "Alder")]))
    context = context_for(QUESTION, collection="manuals")
    outcome = await pipeline.graph.run(context, QUESTION)
    asked = outcome.hitl
    assert asked is not None and asked == context.ask_back
    assert (asked.kind, asked.prompt, asked.options) == (
        HitlKind.SCOPE_SELECT,
        "Which product?",
        ["Cedar", "Alder"],
    )
    assert outcome.chunks == [] and outcome.trace.retrieved_chunks == []
    assert len(outcome.trace.initial_retrieved_chunks) == 1
    state = asked.resume_state
    assert (state.question, state.route, state.rewrite_count) == (QUESTION, Route.SCOPE_SELECT, 0)
    assert (state.retrieval_status, state.collection) == (RetrievalStatus.NEEDS_SCOPE_SELECTION, "manuals")
    assert pipeline.search.collections == ["manuals"]


async def test_a_missing_condition_is_named_in_the_trace() -> None:
    outcome = await Pipeline(grades=ScriptedGrades([which_version()])).graph.run(context_for(QUESTION), QUESTION)
    assert outcome.trace.hitl is not None
    assert outcome.trace.hitl.missing_slots == ["version"]
    assert outcome.trace.hitl.prompt == "Which version?"
    assert outcome.trace.hitl.resumed is None


@pytest.mark.parametrize(
    ("question", "words"), [(QUESTION, "be more specific"), ("它多久采样一次？", "说明得更具体一些")]
)
async def test_a_part_of_an_answer_is_asked_about_in_the_language_of_the_question(question: str, words: str) -> None:
    outcome = await Pipeline(grades=ScriptedGrades([PARTIAL])).graph.run(context_for(question), question)
    assert outcome.hitl is not None and words in outcome.hitl.prompt
    assert outcome.hitl.resume_state.rewrite_count == 1


async def test_the_users_own_words_stay_beside_the_query_that_was_searched() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([which_version()]))
    outcome = await pipeline.graph.run(context_for("and for Cedar?"), "How often does Cedar take a sample?")
    assert pipeline.search.queries == ["How often does Cedar take a sample?"]
    assert outcome.trace.query == "How often does Cedar take a sample?"
    assert outcome.original_question == "and for Cedar?"
    assert outcome.hitl is not None and outcome.hitl.original_question == "and for Cedar?"


async def test_a_blank_query_stands_for_the_users_question() -> None:
    pipeline = Pipeline()
    await pipeline.graph.run(context_for(QUESTION), "  ")
    assert pipeline.search.queries == [QUESTION]


async def test_evidence_without_a_filename_is_neither_graded_nor_cited() -> None:
    search = ScriptedSearch(otherwise=found(chunk("nameless", filename=" "), chunk("named")))
    seen: list[str] = []

    def judge(_: str, chunks: object) -> GradedEvidence:
        assert isinstance(chunks, list)
        seen.extend(piece.text for piece in chunks)
        return grade(ambiguity=Ambiguity.NONE)

    outcome = await Pipeline(search, grades=ScriptedGrades(judge)).graph.run(context_for(QUESTION), QUESTION)
    assert seen == ["named"]
    assert [piece.text for piece in outcome.chunks] == ["named"]
