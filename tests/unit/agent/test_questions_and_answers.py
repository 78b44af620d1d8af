"""Reading questions and answers by rule."""

import pytest

from services.agent.rag.answers import chosen, mentions, refined_question
from services.agent.rag.single_question import plainly_single


@pytest.mark.parametrize(
    "question",
    [
        "How often does Cedar take a sample?",
        "What is the warranty period?",
        "Alder 的默认采样间隔是多少？",
        "怎么校准探头",
        "What does firmware 4.2 change?",
        "Does it run at -40 °C...?",
    ],
)
def test_a_short_question_about_one_thing_is_plainly_single(question: str) -> None:
    assert plainly_single(question)


@pytest.mark.parametrize(
    "question",
    [
        "What is the range of Alder and Birch?",
        "What is the range? How long does the battery last?",
        "How does Alder differ from Cedar?",
        "Alder vs Cedar",
        "range, weight, price?",
        "保修期多久，怎么报修？",
        "Alder 和 Birch 的续航",
        "Alder 与 Cedar 有什么区别？",
        "分别说明三种套餐的价格",
        "List the limit for each plan",
        "先校准；再测试",
        "",
        "word " * 17,
        "很" * 33,
    ],
)
def test_anything_that_may_be_several_questions_is_left_to_the_model(question: str) -> None:
    assert not plainly_single(question)


OPTIONS = ["Alder", "Cedar", "Cedar Pro", "10 m cable", "固件 3", "固件 4"]


@pytest.mark.parametrize(
    ("answer", "option"),
    [
        ("Cedar", "Cedar"),
        ("CEDAR", "Cedar"),
        ("al", "Alder"),
        ("1", "Alder"),
        (" 3) ", "Cedar Pro"),
        ("第五个", "固件 3"),
        ("选6", "固件 4"),
        ("option 2", "Cedar"),
        ("10", "10 m cable"),
        ("cedar p", "Cedar Pro"),
    ],
)
def test_an_answer_stands_for_the_option_it_names(answer: str, option: str) -> None:
    assert chosen(answer, OPTIONS) == option


@pytest.mark.parametrize("answer", ["Ced", "固件", "7", "0", "the blue one", "Cedar with firmware 3", "99"])
def test_an_answer_that_names_no_single_option_is_taken_as_it_is(answer: str) -> None:
    assert chosen(answer, OPTIONS) == answer


def test_an_answer_to_an_open_question_is_taken_as_it_is() -> None:
    assert chosen(" 2 ", []) == "2"
    assert chosen("", ["Alder"]) == ""


@pytest.mark.parametrize(
    ("question", "answer", "refined"),
    [
        ("How long is it?", "Cedar", "Cedar：How long is it?"),
        ("How long is the Cedar?", "cedar", "How long is the Cedar?"),
        ("Alder 的保修期多久？", "Alder", "Alder 的保修期多久？"),
        ("保修期多久？", "北美", "北美：保修期多久？"),
        ("What changed in 30?", "3", "3：What changed in 30?"),
        ("What is it?", "", "What is it?"),
    ],
)
def test_a_refined_question_holds_the_answer_once(question: str, answer: str, refined: str) -> None:
    assert refined_question(question, answer) == refined


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("firmware 4.2 adds", "firmware 4.2", True),
        ("firmware 4.2 adds", "firmware 4", False),
        ("firmware 42", "firmware 4", False),
        ("trellis-firmware-4.md", "Trellis firmware 4", True),
        ("Cedars", "Cedar", False),
        ("固件4的默认值", "固件 4", True),
        ("anything", "?!", False),
    ],
)
def test_a_mention_is_of_whole_words(text: str, wanted: str, expected: bool) -> None:
    assert mentions(text, wanted) is expected


@pytest.mark.parametrize(
    ("question", "answer", "kept_question", "kept_answer"),
    [
        ("很" * 10_922, "Cedar", 10_920, 5),
        ("How long?", "长" * 10_922, 9, 10_918),
        ("很" * 10_922, "长" * 10_922, 5_461, 5_460),
    ],
)
def test_a_refined_question_is_no_longer_than_can_be_stored(
    question: str, answer: str, kept_question: int, kept_answer: int
) -> None:
    refined = refined_question(question, answer)
    assert len(refined.encode()) <= 32_768
    assert refined == f"{answer[:kept_answer]}：{question[:kept_question]}"
