"""What a run tells of itself: steps for people, timings for the trace."""

from services.agent.request_context import ChatRequestContext, RagStep, RagStepKind
from tests.integration.pipeline.scripted import (
    ANSWERS,
    IRRELEVANT,
    PARTIAL,
    Pipeline,
    ScriptedGrades,
    ScriptedQuestions,
    complex_plan,
    context_for,
    which_product,
)

ENGLISH = "How often does it take a sample?"
CHINESE = "它多久采样一次？"
SEVERAL = "What is the range of Alder, and how long does Birch run?"


async def told(pipeline: Pipeline, question: str) -> tuple[list[RagStep], ChatRequestContext]:
    context = context_for(question)
    await pipeline.graph.run(context, question)
    context.close()
    return [step async for step in context.steps()], context


async def test_a_run_tells_its_stages_in_order() -> None:
    steps, _ = await told(Pipeline(grades=ScriptedGrades([PARTIAL, ANSWERS])), ENGLISH)
    kinds = list(dict.fromkeys(step.kind for step in steps))
    assert kinds == [
        RagStepKind.CLASSIFY,
        RagStepKind.RETRIEVE,
        RagStepKind.AUTO_MERGE,
        RagStepKind.RERANK,
        RagStepKind.GRADE,
        RagStepKind.REWRITE,
    ]
    elapsed = [step.elapsed_ms for step in steps]
    assert elapsed == sorted(elapsed)
    assert all(step.icon and step.label and step.stage_elapsed_ms >= 0 for step in steps)


async def test_steps_are_in_the_language_of_the_question() -> None:
    english, _ = await told(Pipeline(), ENGLISH)
    chinese, _ = await told(Pipeline(), CHINESE)
    retrieve = [(step.label, step.detail) for step in english if step.kind is RagStepKind.RETRIEVE]
    assert retrieve == [
        ("Searching the knowledge base", ENGLISH),
        ("Search finished", "24 passages recalled, 2 merged, 1 kept"),
    ]
    retrieve = [(step.label, step.detail) for step in chinese if step.kind is RagStepKind.RETRIEVE]
    assert retrieve == [("正在检索知识库", CHINESE), ("检索完成", "召回 24 段，合并 2 段，保留 1 段")]
    assert [step.kind for step in english] == [step.kind for step in chinese]


async def test_the_steps_of_a_sub_question_carry_its_number_and_words() -> None:
    questions = ScriptedQuestions(planned=complex_plan("range of Alder", "Birch's battery"))
    steps, _ = await told(Pipeline(questions=questions), SEVERAL)
    groups = {(step.group, step.group_label) for step in steps if step.group}
    assert groups == {("1", "range of Alder"), ("2", "Birch's battery")}
    for number in ("1", "2"):
        kinds = [step.kind for step in steps if step.group == number]
        assert kinds[0] is RagStepKind.SUB_QUESTION
        assert {RagStepKind.RETRIEVE, RagStepKind.GRADE} <= set(kinds)
    assert [step.kind for step in steps if not step.group][-1] is RagStepKind.SYNTHESIZE


async def test_the_end_of_a_run_is_told_where_it_is_no_answer() -> None:
    asked, _ = await told(Pipeline(grades=ScriptedGrades([which_product("Alder", "Cedar")])), ENGLISH)
    assert asked[-1].kind is RagStepKind.ASK_BACK and asked[-1].detail == "Which product?"
    unknown, _ = await told(Pipeline(grades=ScriptedGrades([IRRELEVANT])), ENGLISH)
    assert unknown[-1].kind is RagStepKind.NO_KNOWLEDGE


async def test_a_long_question_is_cut_in_a_step_and_whole_in_the_trace() -> None:
    question = "word " * 5000
    steps, context = await told(Pipeline(), question)
    assert all(len(step.detail) <= 200 for step in steps)
    trace = context.peek_rag_trace()
    assert trace is not None and trace.query == question.strip()


async def test_every_stage_is_timed_in_order_of_its_start() -> None:
    _, context = await told(Pipeline(grades=ScriptedGrades([PARTIAL, ANSWERS])), ENGLISH)
    trace = context.peek_rag_trace()
    assert trace is not None
    assert sorted({timing.stage for timing in trace.timings}) == [
        "auto_merge",
        "classify",
        "grade",
        "retrieve",
        "rewrite",
    ]
    starts = [timing.start_ms for timing in trace.timings]
    assert starts == sorted(starts) and all(timing.elapsed_ms >= 0 for timing in trace.timings)


async def test_a_sub_trace_has_its_own_timings_and_the_whole_has_the_synthesis() -> None:
    _, context = await told(Pipeline(questions=ScriptedQuestions(planned=complex_plan("one", "two"))), SEVERAL)
    trace = context.peek_rag_trace()
    assert trace is not None
    assert [timing.stage for timing in trace.timings] == ["classify", "synthesize"]
    for sub_trace in trace.sub_traces:
        assert {timing.stage for timing in sub_trace.timings} == {"retrieve", "auto_merge", "grade"}
