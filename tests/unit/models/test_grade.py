import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent.models import GradedEvidence
from services.agent.models.extractive import ExtractiveGradeModel
from services.agent.schemas import Ambiguity, Answerability, Relevance, RetrievedChunk, Route


async def _grade(question: str, chunks: list[RetrievedChunk]) -> GradedEvidence:
    return await ExtractiveGradeModel().grade(question, chunks=chunks)


def _is_clear_answer(graded: GradedEvidence) -> bool:
    grade = graded.grade
    return (grade.route, grade.relevance, grade.answerability, grade.ambiguity) == (
        Route.ANSWER,
        Relevance.STRONG,
        Answerability.SUFFICIENT,
        Ambiguity.NONE,
    )


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("How often is the machine descaled?", ["Egret", "Heron", "Kestrel"]),
        ("How do I empty the drip tray?", ["Egret", "Heron", "Kestrel"]),
        ("How many bar does the pump work at?", ["Heron", "Kestrel"]),
    ],
)
async def test_an_open_subject_is_asked_back_with_the_candidates_by_name(
    question: str, options: list[str], espresso_machines: list[RetrievedChunk]
) -> None:
    graded = await _grade(question, espresso_machines)
    assert graded.grade.ambiguity is Ambiguity.MULTIPLE_CANDIDATES
    assert graded.grade.route is Route.SCOPE_SELECT
    assert graded.options == options
    assert all(option in graded.prompt for option in options)


@pytest.mark.parametrize("question", ["带薪休假有多少天？", "休假申请由谁审批？"])
async def test_sections_of_one_document_are_candidates_too_and_a_twin_in_another_language_is_none(
    question: str, leave_policy: list[RetrievedChunk]
) -> None:
    graded = await _grade(question, leave_policy)
    assert graded.grade.ambiguity is Ambiguity.MULTIPLE_CANDIDATES
    assert graded.options == ["北京员工", "成都员工"]
    assert "请问" in graded.prompt


@pytest.mark.parametrize(
    "question",
    [
        "How often is the Heron descaled?",
        "Heron：How often is the machine descaled?",
        "the heron：How do I empty the drip tray?",
        "How do I empty the drip tray of the Egret?",
    ],
)
async def test_a_question_that_names_its_subject_is_not_asked_back(
    question: str, espresso_machines: list[RetrievedChunk]
) -> None:
    assert _is_clear_answer(await _grade(question, espresso_machines))


@pytest.mark.parametrize("question", ["成都员工：带薪休假有多少天？", "成都员工的带薪休假有多少天？"])
async def test_a_chinese_question_that_names_its_subject_is_not_asked_back(
    question: str, leave_policy: list[RetrievedChunk]
) -> None:
    assert _is_clear_answer(await _grade(question, leave_policy))


async def test_an_answer_in_other_words_picks_the_document_that_has_them(
    espresso_machines: list[RetrievedChunk],
) -> None:
    chunks = [
        *espresso_machines,
        RetrievedChunk(filename="heron-guide.md", text="Heron: guide for baristas\n\nThe Heron is built for hotels."),
    ]
    assert _is_clear_answer(await _grade("the one for hotels：How do I empty the drip tray?", chunks))


async def test_candidates_that_give_the_same_answer_leave_nothing_open() -> None:
    chunks = [
        RetrievedChunk(filename=f"{name}.md", text=f"{name}: guide\n\nThe tank of the {name} holds 2 litres.")
        for name in ("Kestrel", "Heron")
    ]
    assert _is_clear_answer(await _grade("How many litres does the tank hold?", chunks))


async def test_passages_about_unlike_things_are_no_candidates() -> None:
    chunks = [
        RetrievedChunk(filename="rent.md", text="Renting a machine\n\nThe contract runs for 12 months."),
        RetrievedChunk(
            filename="jobs.md", text="Jobs at the roastery\n\nAn apprentice's contract, of 36 months, runs from August."
        ),
    ]
    graded = await _grade("How long does the contract run?", chunks)
    assert graded.options == []


async def test_more_candidates_than_can_be_listed_are_asked_for_without_options() -> None:
    names = ["Avocet", "Bittern", "Curlew", "Dunlin", "Eider", "Fulmar", "Gannet", "Heron", "Ibis", "Jacana"]
    chunks = [
        RetrievedChunk(filename=f"{name}.md", text=f"{name}: guide\n\nThe tank of the {name} holds {size} litres.")
        for size, name in enumerate(names, start=1)
    ]
    graded = await _grade("How many litres does the tank hold?", chunks)
    assert graded.grade.ambiguity is Ambiguity.MISSING_SLOT
    assert graded.grade.route is Route.CLARIFY
    assert graded.options == []
    assert graded.prompt
    assert graded.missing_slots


@pytest.mark.parametrize(
    "question",
    [
        "Who won the chess olympiad of 1972?",
        "What is the capital of Peru?",
        "怎么学习弹钢琴？",
        "How do I knit a sock?",
    ],
)
async def test_a_question_off_the_subject_is_never_answerable(
    question: str, espresso_machines: list[RetrievedChunk], leave_policy: list[RetrievedChunk]
) -> None:
    graded = await _grade(question, [*espresso_machines, *leave_policy])
    assert graded.grade.relevance in (Relevance.NONE, Relevance.WEAK)
    assert graded.grade.answerability is Answerability.NONE
    assert graded.grade.reason


async def test_another_products_name_is_not_answered_from_this_ones_documents(
    espresso_machines: list[RetrievedChunk],
) -> None:
    graded = await _grade("How often is the Albatross descaled?", espresso_machines)
    assert graded.grade.relevance is Relevance.WEAK
    assert graded.grade.answerability is not Answerability.SUFFICIENT
    assert graded.options == []


async def test_evidence_about_the_subject_but_not_about_what_is_asked_is_no_answer(
    espresso_machines: list[RetrievedChunk],
) -> None:
    graded = await _grade("Who invented the Heron?", espresso_machines)
    assert graded.grade.answerability is Answerability.NONE


async def test_a_version_is_answered_by_its_family() -> None:
    chunks = [
        RetrievedChunk(filename=f"release-{major}.md", text=f"Release {major}.x\n\nRelease {major}.x needs {major} GB.")
        for major in (2, 3)
    ]
    assert _is_clear_answer(await _grade("How many GB does release 3.4 need?", chunks))


@pytest.mark.parametrize(
    "question", ["What is the descaling period of the machine?", "What is the machine's descaling time?"]
)
async def test_a_word_that_only_tells_the_kind_of_answer_need_not_be_found(
    question: str, espresso_machines: list[RetrievedChunk]
) -> None:
    graded = await _grade(question, espresso_machines)
    assert graded.options == ["Egret", "Heron", "Kestrel"]


async def test_what_answers_in_part_is_shown_with_its_document(espresso_machines: list[RetrievedChunk]) -> None:
    graded = await _grade("Is the pump of the Heron waterproof?", espresso_machines)
    assert graded.grade.answerability is Answerability.PARTIAL
    assert graded.grade.route is Route.REWRITE
    assert "- “The pump of the Heron works at 15 bar.” (heron-guide.md)" in graded.prompt


async def test_a_name_in_a_sentence_about_something_else_is_no_full_answer() -> None:
    chunks = [
        RetrievedChunk(filename="heron-guide.md", text="Heron: guide\n\nThe Heron is built for hotels."),
        RetrievedChunk(filename="repairs.md", text="Repairs\n\nA repair costs €40. Ask for the form by post."),
    ]
    assert not _is_clear_answer(await _grade("How much is a polish of the Heron?", chunks))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How long does descaling take?", "Descaling takes place in the kitchen. It is free of lime."),
        ("How long does descaling take?", "Descaling is due every two months."),
        ("How much is descaling?", "Descaling is offered in Lyon."),
        ("Was there ever a recall?", "The hot line handles a recall and nothing else."),
    ],
)
async def test_a_figure_or_an_event_that_is_asked_for_is_never_given_by_a_sentence_without_one(
    question: str, text: str
) -> None:
    chunks = [RetrievedChunk(filename="care.md", text=f"Care\n\n{text}")]
    assert not _is_clear_answer(await _grade(question, chunks))


async def test_the_price_of_a_service_to_a_thing_is_not_the_price_of_the_thing() -> None:
    chunks = [RetrievedChunk(filename="repairs.md", text="Services\n\nA repair of a Heron machine costs €40.")]
    assert not _is_clear_answer(await _grade("How much does a Heron cost?", chunks))
    assert _is_clear_answer(await _grade("How much is a repair of a Heron?", chunks))


async def test_circumstances_told_before_a_question_choose_the_document_and_need_not_be_found() -> None:
    chunks = [
        RetrievedChunk(
            filename=f"terms-{number}.md",
            text=f"# Terms: {region}\n\nThese terms hold in {lands}.\n\n"
            f"## Guarantee in {region}\n\nIn {region}, the guarantee on machines is {number} months.",
        )
        for number, region, lands in ((12, "Iberia", "Spain and Portugal"), (18, "Scandinavia", "Norway and Sweden"))
    ]
    assert _is_clear_answer(await _grade("I moved to Norway, how long is my guarantee as a student?", chunks))
    asked = await _grade("I bought it in Fiji for my café. How long is the guarantee?", chunks)
    assert asked.options == ["Iberia", "Scandinavia"]


async def test_a_row_that_tells_a_different_thing_of_each_column_leaves_the_column_open() -> None:
    table = "Kettles\n\n## Overview\n\n| | Kestrel | Heron |\n|---|---|---|\n| Litres | 2 | 5 |\n| Colour | red | red |"
    chunks = [RetrievedChunk(filename="kettles.md", text=table)]
    assert (await _grade("How many litres?", chunks)).options == ["Kestrel", "Heron"]
    assert _is_clear_answer(await _grade("Heron：How many litres?", chunks))
    assert _is_clear_answer(await _grade("What colour?", chunks))


async def test_a_number_is_answered_by_the_range_that_holds_it() -> None:
    table = "水箱\n\n## 泵的数量\n\n| 水箱容积 | 水泵 |\n|---|---|\n| 10 至 50 升 | 2 |\n| 50 至 1,000 升 | 7 |"
    chunks = [RetrievedChunk(filename="tank.zh.md", text=table)]
    assert _is_clear_answer(await _grade("400升的水箱需要几个水泵？", chunks))


async def test_a_name_is_known_by_its_other_name_in_brackets() -> None:
    chunks = [
        RetrievedChunk(
            filename=f"{pinyin}.zh.md",
            text=f"{han}系列（{latin}）用于酒店。\n\n## 重量\n\n{han}咖啡机的重量为 {kilos} 千克。",
        )
        for pinyin, han, latin, kilos in (("baihua", "白桦", "Heron", 9), ("xuesong", "雪松", "Egret", 12))
    ]
    graded = await _grade("Egret 的重量是多少？", chunks)
    assert _is_clear_answer(graded)
    assert "xuesong" in graded.grade.reason


async def test_an_answer_that_picks_nothing_is_asked_for_again(espresso_machines: list[RetrievedChunk]) -> None:
    graded = await _grade("the shiniest paid one：How often is the machine descaled?", espresso_machines)
    assert graded.options == ["Egret", "Heron", "Kestrel"]


async def test_a_question_put_in_other_words_stands_for_itself(espresso_machines: list[RetrievedChunk]) -> None:
    assert _is_clear_answer(await _grade("How often is the Heron descaled?：How about limestone?", espresso_machines))


async def test_no_evidence_gets_a_grade() -> None:
    graded = await _grade("How often is the machine descaled?", [])
    assert graded.grade.relevance is Relevance.NONE
    assert graded.grade.answerability is Answerability.NONE
    assert graded.grade.route is Route.NO_KNOWLEDGE


async def test_the_reason_is_in_the_language_of_the_question(leave_policy: list[RetrievedChunk]) -> None:
    assert "覆盖" in (await _grade("成都员工的带薪休假有多少天？", leave_policy)).grade.reason
    assert "covers" in (await _grade("How many days of paid leave has staff in Chengdu?", leave_policy)).grade.reason


@settings(max_examples=60, deadline=None)
@given(question=st.text(max_size=80), texts=st.lists(st.text(max_size=200), max_size=4))
def test_any_text_gets_a_grade_and_the_same_one_again(question: str, texts: list[str]) -> None:
    chunks = [RetrievedChunk(filename=f"{number}.md", text=text) for number, text in enumerate(texts)]
    first = asyncio.run(_grade(question, chunks))
    assert asyncio.run(_grade(question, chunks)) == first


async def test_hostile_evidence_costs_no_more_than_its_length() -> None:
    hostile = [
        "|" * 50_000,
        "#" * 50_000,
        "[" * 50_000,
        "a." * 25_000,
        "。" * 50_000,
        "x" * 50_000,
        "- " * 25_000,
        "*" * 50_000,
    ]
    chunks = [RetrievedChunk(filename="hostile.md", text=text) for text in hostile]
    began = time.perf_counter()
    await _grade("How often is the machine descaled?", chunks)
    assert time.perf_counter() - began < 5
