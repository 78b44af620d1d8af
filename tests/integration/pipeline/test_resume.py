"""Going on after the user's answer."""

import pytest

from services.agent.errors import CollectionNotFound, KnowledgeUnavailable, ModelMalformed
from services.agent.models.base import GradedEvidence
from services.agent.rag.outcome import RagOutcome
from services.agent.request_context import AskBack, ChatRequestContext
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    HitlKind,
    HitlResumeState,
    HitlState,
    PendingHitlState,
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
    context_for,
    found,
    grade,
    which_product,
    which_version,
)

QUESTION = "How often does it take a sample?"


def claimed(asked: AskBack) -> PendingHitlState:
    """A question back as it comes from storage, once a run has claimed it."""
    return PendingHitlState(
        task_id="t1",
        original_question=asked.original_question,
        prompt=asked.prompt,
        options=asked.options,
        kind=asked.kind,
        state=HitlState.CLAIMED,
        answers=asked.answers,
        resume_state=asked.resume_state,
    )


def waiting(
    *options: str, kind: HitlKind = HitlKind.SCOPE_SELECT, prompt: str = "Which product?", rewrite_count: int = 0
) -> PendingHitlState:
    choose = kind is HitlKind.SCOPE_SELECT
    return claimed(
        AskBack(
            kind=kind,
            prompt=prompt,
            options=list(options),
            original_question=QUESTION,
            resume_state=HitlResumeState(
                question=QUESTION,
                route=Route.SCOPE_SELECT if choose else Route.CLARIFY,
                retrieval_status=(
                    RetrievalStatus.NEEDS_SCOPE_SELECTION if choose else RetrievalStatus.NEEDS_CLARIFICATION
                ),
                rewrite_count=rewrite_count,
                collection="manuals",
            ),
        )
    )


async def resumed(pipeline: Pipeline, pending: PendingHitlState, answer: str) -> tuple[RagOutcome, ChatRequestContext]:
    context = context_for(pending.original_question, collection="manuals")
    return await pipeline.graph.resume(context, pending, answer), context


async def test_one_targeted_retrieval_and_no_graph_leads_from_the_answer_to_the_evidence() -> None:
    pipeline = Pipeline()
    outcome, context = await resumed(pipeline, waiting("Alder", "Cedar"), "Cedar")
    assert outcome.status is RetrievalStatus.ANSWERABLE
    assert pipeline.search.queries == [f"Cedar：{QUESTION}"]
    assert pipeline.search.collections == ["manuals"]
    assert pipeline.questions.plans == [] and pipeline.questions.rewrites == []
    trace = outcome.trace
    assert trace.retrieval_stage is RetrievalStage.HITL_TARGETED
    assert trace.hitl_targeted_retrieved_chunks == trace.retrieved_chunks == outcome.chunks
    assert trace.initial_retrieved_chunks == []
    assert trace.hitl is not None
    assert (trace.hitl.resumed, trace.hitl.answer) == (True, "Cedar")
    assert trace.hitl.resume_strategy == "targeted_retrieval"
    assert trace.hitl.resumed_from == waiting("Alder", "Cedar").resume_state
    assert (trace.hitl.prompt, trace.hitl.options) == ("Which product?", ["Alder", "Cedar"])
    assert context.peek_rag_trace() == trace and context.ask_back is None


@pytest.mark.parametrize("answer", ["2", "Cedar", "cedar", " Ced", "2.", "#2", "第二个", "option 2"])
async def test_a_number_or_beginning_stands_for_its_option(answer: str) -> None:
    pipeline = Pipeline()
    await resumed(pipeline, waiting("Alder", "Cedar probe"), answer)
    assert pipeline.search.queries == [f"Cedar probe：{QUESTION}"]


async def test_an_answer_that_the_question_holds_already_is_not_put_before_it() -> None:
    pipeline = Pipeline()
    pending = waiting("Alder", "Cedar")
    assert pending.resume_state is not None
    pending.resume_state.question = "How often does Cedar take a sample?"
    await resumed(pipeline, pending, "cedar")
    assert pipeline.search.queries == ["How often does Cedar take a sample?"]


async def test_several_rounds_keep_the_first_question_and_all_answers() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([which_product("Alder", "Cedar"), which_version(), ANSWERS]))
    asked = (await pipeline.graph.run(context_for(QUESTION), QUESTION)).hitl
    assert asked is not None
    second, context = await resumed(pipeline, claimed(asked), "2")
    assert second.status is RetrievalStatus.NEEDS_CLARIFICATION and second.hitl is not None
    assert second.hitl.original_question == QUESTION
    assert second.hitl.answers == ["Cedar"]
    assert context.ask_back == second.hitl
    assert second.trace.hitl is not None and second.trace.hitl.prompt == "Which version?"
    third, _ = await resumed(pipeline, claimed(second.hitl), "firmware 4")
    assert third.status is RetrievalStatus.ANSWERABLE
    assert third.original_question == QUESTION
    assert pipeline.search.queries == [
        QUESTION,
        f"Cedar：{QUESTION}",
        f"firmware 4：Cedar：{QUESTION}",
    ]


async def test_a_rewrite_that_is_left_is_spent_after_the_answer() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([PARTIAL, ANSWERS]))
    outcome, _ = await resumed(pipeline, waiting("Alder", "Cedar"), "Cedar")
    assert outcome.status is RetrievalStatus.ANSWERABLE
    assert pipeline.search.queries == [f"Cedar：{QUESTION}", "sampling in general"]
    assert outcome.trace.retrieval_stage is RetrievalStage.REWRITTEN
    assert outcome.trace.hitl_targeted_retrieved_chunks and outcome.trace.rewrite_retrieved_chunks


async def test_a_rewrite_spent_before_the_question_is_not_spent_again() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([WANTS_REWRITE]))
    outcome, _ = await resumed(pipeline, waiting("Alder", "Cedar", rewrite_count=1), "Cedar")
    assert outcome.status is RetrievalStatus.NO_KNOWLEDGE
    assert pipeline.questions.rewrites == [] and len(pipeline.search.queries) == 1


async def test_a_rewrite_that_fails_after_the_answer_counts_as_done() -> None:
    pipeline = Pipeline(questions=ScriptedQuestions(rewritten=ModelMalformed()), grades=ScriptedGrades([WANTS_REWRITE]))
    outcome, _ = await resumed(pipeline, waiting("Alder", "Cedar"), "Cedar")
    assert outcome.status is RetrievalStatus.NO_KNOWLEDGE


@pytest.mark.parametrize("search", [ScriptedSearch(otherwise=found()), ScriptedSearch()])
async def test_nothing_known_after_the_answer_is_said(search: ScriptedSearch) -> None:
    pipeline = Pipeline(search, grades=ScriptedGrades([IRRELEVANT]))
    outcome, _ = await resumed(pipeline, waiting("Alder", "Cedar"), "Cedar")
    assert outcome.status is RetrievalStatus.NO_KNOWLEDGE and outcome.hitl is None
    assert outcome.trace.hitl is not None and outcome.trace.hitl.resumed is True


async def test_a_failed_search_after_the_answer_is_an_error() -> None:
    with pytest.raises(KnowledgeUnavailable):
        await resumed(Pipeline(ScriptedSearch(otherwise=FAILED)), waiting("Alder", "Cedar"), "Cedar")


SAME_AGAIN = [
    pytest.param(which_product("Alder", "Cedar"), id="the same options"),
    pytest.param(which_product("Cedar", "Birch"), id="other options, the chosen one among them"),
]


@pytest.mark.parametrize("graded", SAME_AGAIN)
async def test_a_choice_that_was_made_is_not_asked_again(graded: GradedEvidence) -> None:
    search = ScriptedSearch(otherwise=found(chunk("Alder: 30 s."), chunk("Cedar: 10 s.")))
    for piece in search.otherwise.chunks:
        piece.filename = "manual.md"
    outcome, _ = await resumed(Pipeline(search, grades=ScriptedGrades([graded])), waiting("Alder", "Cedar"), "2")
    assert outcome.status is RetrievalStatus.ANSWERABLE and outcome.hitl is None
    assert [piece.text for piece in outcome.chunks] == ["Cedar: 10 s."]
    assert outcome.trace.evidence is not None and outcome.trace.evidence.route is Route.ANSWER


async def test_an_answer_that_no_evidence_names_is_asked_about_again() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([which_product("Alder", "Birch")]))
    outcome, _ = await resumed(pipeline, waiting("Alder", "Birch"), "the green one")
    assert outcome.status is RetrievalStatus.NEEDS_SCOPE_SELECTION
    assert outcome.hitl is not None and outcome.hitl.answers == ["the green one"]


async def test_another_question_may_follow_an_answer() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([which_product("firmware 3", "firmware 4")]))
    outcome, _ = await resumed(pipeline, waiting("Alder", "Cedar"), "Cedar")
    assert outcome.hitl is not None and outcome.hitl.options == ["firmware 3", "firmware 4"]


async def test_an_open_question_that_was_answered_ends_in_the_part_that_is_known() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([PARTIAL]))
    asked = (await pipeline.graph.run(context_for(QUESTION), QUESTION)).hitl
    assert asked is not None and asked.options == []
    outcome, _ = await resumed(pipeline, claimed(asked), "in a cold room")
    assert outcome.status is RetrievalStatus.PARTIAL and outcome.chunks


async def test_an_offered_choice_that_no_evidence_names_is_answered_in_part_and_not_asked_again() -> None:
    pipeline = Pipeline(grades=ScriptedGrades([which_product("Alder", "Birch")]))
    outcome, _ = await resumed(pipeline, waiting("Alder", "Birch"), "Birch")
    assert outcome.status is RetrievalStatus.PARTIAL and outcome.chunks and outcome.hitl is None


async def test_incomplete_evidence_does_not_ask_for_more_for_ever() -> None:
    def judge(question: str, _: object) -> GradedEvidence:
        return grade(Route.REWRITE, answerability=Answerability.PARTIAL, prompt=f"Say more than: {question}")

    pipeline = Pipeline(grades=ScriptedGrades(judge))
    asked = (await pipeline.graph.run(context_for(QUESTION), QUESTION)).hitl
    assert asked is not None and asked.prompt == f"Say more than: {QUESTION}"
    outcome, _ = await resumed(pipeline, claimed(asked), "in a cold room")
    assert outcome.status is RetrievalStatus.PARTIAL and outcome.hitl is None


async def test_a_collection_deleted_since_the_question_is_one_that_knows_nothing() -> None:
    search = ScriptedSearch(missing={"manuals"})
    outcome, context = await resumed(Pipeline(search), waiting("Alder", "Cedar"), "Cedar")
    assert outcome.status is RetrievalStatus.NO_KNOWLEDGE and outcome.hitl is None
    trace = context.peek_rag_trace()
    assert trace is not None and trace.retrieval is not None
    assert (trace.retrieval.error, trace.retrieval.empty) == ("COLLECTION_NOT_FOUND", True)


async def test_a_collection_that_is_not_there_when_the_question_comes_is_an_error() -> None:
    pipeline = Pipeline(ScriptedSearch(missing={"manuals"}))
    with pytest.raises(CollectionNotFound):
        await pipeline.graph.run(context_for(QUESTION, collection="manuals"), QUESTION)


LIMIT = 32_768


def fits(asked: AskBack) -> bool:
    """Whether storage takes it."""
    state = asked.resume_state
    texts = [asked.prompt, asked.original_question, state.question, *state.sub_questions, *asked.answers]
    return (
        all(0 < len(text.encode()) <= LIMIT for text in texts)
        and len(state.complexity_reason.encode()) <= LIMIT
        and len(asked.options) <= 20
        and len(asked.answers) <= 100
        and all(0 < len(option.encode()) <= 1024 for option in asked.options)
    )


@pytest.mark.parametrize("question", [QUESTION, "很" * 10_922, "long " * 6_553])
@pytest.mark.parametrize("answer", ["Cedar", "长" * 10_922, "wide " * 6_553])
async def test_a_question_back_after_the_longest_texts_can_be_stored(question: str, answer: str) -> None:
    pipeline = Pipeline(grades=ScriptedGrades([which_product("Alder", "Birch"), which_version()]))
    pending = waiting("Cedar", "Egret")
    assert pending.resume_state is not None
    pending.original_question = pending.resume_state.question = question
    pending.answers = ["earlier"] * 100
    asked = (await resumed(pipeline, pending, answer))[0].hitl
    assert asked is not None and fits(asked)
    assert asked.answers[-1] == answer.strip()
    again = (await resumed(pipeline, claimed(asked), answer[::-1]))[0].hitl
    assert again is not None and fits(again)


async def test_a_graders_long_and_unclean_question_is_cut_to_what_can_be_stored() -> None:
    options = [f"{number} " + "长" * 400 for number in range(30)] + ["Cedar\0", "Cedar", "\ud800", " "]
    graded = grade(
        Route.SCOPE_SELECT,
        ambiguity=Ambiguity.MULTIPLE_CANDIDATES,
        prompt="哪个？\0" * 5_000,
        options=options,
        missing_slots=["a\ud800b"],
    )
    asked = (await Pipeline(grades=ScriptedGrades([graded])).graph.run(context_for(QUESTION), QUESTION)).hitl
    assert asked is not None and fits(asked)
    assert len(asked.options) == 20 and asked.prompt.startswith("哪个？哪个？")
    few = grade(Route.SCOPE_SELECT, ambiguity=Ambiguity.MULTIPLE_CANDIDATES, options=options[-4:])
    asked = (await Pipeline(grades=ScriptedGrades([few])).graph.run(context_for(QUESTION), QUESTION)).hitl
    assert asked is not None and asked.options == ["Cedar"]
