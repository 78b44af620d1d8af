"""What the built-in models make of questions as people put them, through the whole pipeline.

Each case stands for a kind of question: words that the documents do not use, conditions told beforehand,
comparisons, follow-ups, tables, and subjects that are known where what is asked of them is not.
"""

from typing import Protocol

import pytest

from services.agent.request_context import AskBack
from services.agent.schemas import RagTrace

NOTHING_KNOWN = "I found no answer to this in the documents."


class Conversation(Protocol):
    asked_back: AskBack | None
    trace: RagTrace | None

    async def say(self, message: str) -> str: ...


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("What is the battery life?", ["Alder", "Birch", "Cedar"]),
        ("What is the warranty period?", ["Europe", "North America"]),
        ("How long are readings kept?", ["Seed", "Grove", "Forest"]),
        ("I bought a Birch in Germany as a company. Can I return it?", ["Europe", "North America"]),
    ],
)
async def test_what_differs_is_asked_back_whatever_words_the_question_has(
    conversation: Conversation, question: str, options: list[str]
) -> None:
    await conversation.say(question)
    assert conversation.asked_back is not None
    assert conversation.asked_back.options == options


@pytest.mark.parametrize(
    ("question", "phrase"),
    [
        ("battery life of Alder", "its battery lasts 3 years"),
        ("how long does the battery of birch last", "its battery lasts 5 years"),
        ("Is an Alder sensor waterproof?", "withstands misting and hose water"),
        ("How accurate is the Birch B25?", "an accuracy of ±0.2 °C"),
        ("What is the weight of the Alder A20?", "Model: A20; Measures: as A10, and carbon dioxide; Weight: 185 g"),
        ("I live in Canada, how long is my warranty as a consumer?", "18 months for all customers"),
        ("In Europe, how long is the warranty?", "36 months for consumers"),
        ("What does E-41 mean?", "the probe is broken"),
        ("校准 Birch B40 多少钱", "950 元"),
        ("400立方米的冷库需要几个验收测点？", "验收测点: 27"),
        ("库房300到2000立方米要多少验收测点", "验收测点: 27"),
    ],
)
async def test_a_question_is_answered_though_its_words_are_not_all_the_documents(
    conversation: Conversation, question: str, phrase: str
) -> None:
    answer = await conversation.say(question)
    assert conversation.asked_back is None
    assert phrase in answer


@pytest.mark.parametrize(
    ("question", "phrases"),
    [
        ("Compare the alarm delay of Alder and Birch", ["15 minutes by default", "30 minutes by default"]),
        (
            "Compare the alarm delay of Alder, Birch and Cedar",
            ["15 minutes by default", "30 minutes by default", "5 minutes by default"],
        ),
        ("What is the difference between Alder and Birch?", ["greenhouses", "freezers"]),
        ("what's the difference between Seed and Forest?", ["free of charge", "€5.80"]),
        ("How much is a calibration of a Cedar and how long does it take?", ["€80", "6 working days"]),
        ("Cedar: which mobile network and what battery?", ["mobile", "rechargeable battery"]),
        ("Alder 和 Birch 的电池寿命有什么区别？", ["3 年", "5 年"]),
        ("Alder 和 Birch 的保修有什么区别？", ["保修期为 12 个月", "保修期为 24 个月"]),
    ],
)
async def test_several_things_asked_at_once_are_each_answered_and_nothing_else(
    conversation: Conversation, question: str, phrases: list[str]
) -> None:
    answer = await conversation.say(question)
    assert conversation.asked_back is None
    assert all(phrase in answer for phrase in phrases)
    assert not any(stray in answer for stray in ("pairing list", "roaming group", "Wi-Fi card", "power cut"))


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("How many failed logins before lockout?", "After 6 failed attempts, a Canopy account is locked"),
        ("What time does support open on Saturdays?", "open Monday to Friday from 07:30 to 18:00"),
        ("Do I need a SIM card for Cedar?", "Each Cedar recorder contains a SIM"),
        ("How much does an Alder cost?", "A calibration of an Alder sensor at three points costs €68"),
        ("Was there ever an outage?", "lost alarms and outages only"),
        ("warranty in China", "the warranty on Lindvale products is"),
    ],
)
async def test_what_is_only_near_is_shown_as_no_answer(
    conversation: Conversation, question: str, sentence: str
) -> None:
    answer = await conversation.say(question)
    assert answer == ""
    assert conversation.asked_back is not None
    assert conversation.asked_back.prompt.startswith("The documents do not answer this directly.")
    assert sentence in conversation.asked_back.prompt
    assert conversation.asked_back.options == []


async def test_the_same_in_other_words_is_answered_then(conversation: Conversation) -> None:
    await conversation.say("How many failed logins before lockout?")
    assert conversation.asked_back is not None
    answer = await conversation.say("After how many failed attempts is an account locked?")
    assert conversation.asked_back is None
    assert "After 6 failed attempts" in answer


@pytest.mark.parametrize(
    "question",
    [
        "Birch：And how long does it take to charge?",
        "Who invented the Alder?",
        "Who is the managing director of Lindvale?",
        "How long does shipping take?",
        "What is the meaning of life?",
    ],
)
async def test_a_subject_alone_makes_no_answer(conversation: Conversation, question: str) -> None:
    assert await conversation.say(question) == NOTHING_KNOWN
    assert conversation.asked_back is None


async def test_an_answer_that_picks_none_of_the_options_is_asked_again(conversation: Conversation) -> None:
    await conversation.say("How much does it cost per month?")
    assert conversation.asked_back is not None
    options = conversation.asked_back.options
    await conversation.say("the cheapest paid one")
    assert conversation.asked_back is not None
    assert conversation.asked_back.options == options
