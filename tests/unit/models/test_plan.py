import asyncio

import pytest

from services.agent.models.extractive import ExtractiveQuestionModel
from services.agent.schemas import MAX_SUB_QUESTIONS, Complexity


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (
            "What is the difference between the weight of the Heron and the weight of the Egret?",
            ["What is the weight of the Heron?", "What is the weight of the Egret?"],
        ),
        (
            "Compare the fee for repairs by private owners in Spain and by owners in Chile.",
            [
                "What is the fee for repairs by private owners in Spain?",
                "What is the fee for repairs by owners in Chile?",
            ],
        ),
        (
            "How long does a boiler keep warm with version 2.x, and how long with version 3.x?",
            [
                "How long does a boiler keep warm with version 2.x?",
                "How long does a boiler keep warm with version 3.x?",
            ],
        ),
        (
            "What does a filter cost? And in Chile?",
            ["What does a filter cost?", "What does a filter cost in Chile?"],
        ),
        (
            "How do the Heron and the Egret differ in water use?",
            ["What is the water use of the Heron?", "What is the water use of the Egret?"],
        ),
        (
            "Compare the weight of the Heron, the Egret and the Kestrel",
            [
                "What is the weight of the Heron?",
                "What is the weight of the Egret?",
                "What is the weight of the Kestrel?",
            ],
        ),
        ("Compare Heron and Egret water use", ["What is the water use of Heron?", "What is the water use of Egret?"]),
        (
            "Compare the weight and the height of the Heron",
            ["What is the weight of the Heron?", "What is the height of the Heron?"],
        ),
        (
            "What is the difference in weight between the Heron and the Egret?",
            ["What is the weight of the Heron?", "What is the weight of the Egret?"],
        ),
        ("what's the difference between Heron and Egret?", ["What is Heron?", "What is Egret?"]),
        ("Heron vs. Egret", ["What is Heron?", "What is Egret?"]),
        (
            "How much is a repair of the Heron and how long does it take?",
            ["How much is a repair of the Heron?", "How long does a repair of the Heron take?"],
        ),
        ("Heron: which pump and what tank?", ["Heron：Which pump?", "Heron：What tank?"]),
        ("Heron 和 Egret 的重量有什么区别？", ["Heron的重量是什么？", "Egret的重量是什么？"]),
        ("北京员工和成都员工的休假有什么不同？", ["北京员工的休假是什么？", "成都员工的休假是什么？"]),
        ("比较红隼和苍鹭的重量。", ["红隼的重量是什么？", "苍鹭的重量是什么？"]),
        ("红隼与苍鹭的价格分别是多少？", ["红隼的价格是多少？", "苍鹭的价格是多少？"]),
        ("红隼和苍鹭的重量相比哪个更大？", ["红隼的重量是什么？", "苍鹭的重量是什么？"]),
        ("红隼多少钱？苍鹭多少钱？", ["红隼多少钱？", "苍鹭多少钱？"]),
    ],
)
async def test_a_question_for_several_things_becomes_whole_sub_questions(question: str, parts: list[str]) -> None:
    plan = await ExtractiveQuestionModel().plan(question)
    assert plan.complexity is Complexity.COMPLEX
    assert plan.sub_questions == parts
    assert plan.sub_agent_count == len(parts)
    assert plan.reason


@pytest.mark.parametrize(
    "question",
    [
        "How do I rinse and dry the drip tray?",
        "What is the weight of the Heron?",
        "How long does the filter last and how do I replace it?",
        "如何清洗和保养咖啡机？",
        "怎么重置密码，它有多长？",
        "苍鹭：怎么重置密码？",
        "",
        "？？？",
    ],
)
async def test_a_question_for_one_thing_or_one_whose_parts_lean_on_each_other_stays_whole(question: str) -> None:
    plan = await ExtractiveQuestionModel().plan(question)
    assert plan.complexity is Complexity.SIMPLE
    assert plan.sub_questions == []
    assert plan.reason


async def test_the_reason_is_in_the_language_of_the_question() -> None:
    model = ExtractiveQuestionModel()
    assert "只问" in (await model.plan("红隼有多重？")).reason
    assert "one thing" in (await model.plan("How heavy is the Kestrel?")).reason


async def test_no_plan_has_more_parts_than_may_be_fanned_out() -> None:
    question = " ".join(f"What is the weight of model {letter}?" for letter in "ABCDEFG")
    plan = await ExtractiveQuestionModel().plan(question)
    assert len(plan.sub_questions) == MAX_SUB_QUESTIONS


@pytest.mark.parametrize("question", ["如何重置和" * 2_100, "和的丙" * 3_600, "what and " * 3_600])
async def test_a_question_of_any_length_is_planned_at_once_and_off_the_loop(question: str) -> None:
    loop = asyncio.get_running_loop()
    planning = asyncio.create_task(ExtractiveQuestionModel().plan(question))
    longest = 0.0
    while not planning.done():
        before = loop.time()
        await asyncio.sleep(0)
        longest = max(longest, loop.time() - before)
    plan = await planning
    assert longest < 0.5
    assert plan.complexity is Complexity.SIMPLE
    assert "too long" in plan.reason or "过长" in plan.reason
