"""Whatever the longest message holds, reading it takes time with its length and not with its square."""

import time
from collections.abc import Callable

import pytest

from services.agent.language import language_of
from services.agent.models import session_title
from services.agent.models.extractive.asking import asking_of
from services.agent.models.extractive.chat import is_small_talk, whole_question
from services.agent.models.extractive.plan import plan
from services.agent.models.extractive.terms import terms_of
from services.agent.models.extractive.weighing import weigh
from services.agent.rag.answers import chosen, mentions, refined_question
from services.agent.rag.single_question import plainly_single
from services.agent.schemas import RetrievedChunk

MAX_BYTES = 32_768
CHUNKS = [
    RetrievedChunk(filename=f"{name}.md", text=f"# {name}\n\nThe battery of the {name} lasts 3 years. 保修期为两年。")
    for name in ("Alder", "Birch", "Cedar")
]
READERS: list[Callable[[str], object]] = [
    plainly_single,
    session_title,
    language_of,
    is_small_talk,
    plan,
    asking_of,
    terms_of,
    lambda text: whole_question("And for Birch?", [f"{text}?"]),
    lambda text: whole_question(text, ["How long is the Cedar cable?"]),
    lambda text: chosen(text, ["Alder", "Cedar"]),
    lambda text: mentions(text, text),
    lambda text: refined_question(text, f"{text} more"),
    lambda text: weigh(text, CHUNKS),
]
PIECES = [
    *("Ab ", "Ab. ", 'A "', " ", "\n", "1", "1,111,", "v1.", "a-", "word ", "and for "),
    *("呢", "如何重置和", "的和", "什么 以及"),
]


@pytest.mark.parametrize("text", [*(piece * (MAX_BYTES // len(piece.encode())) for piece in PIECES), None])
def test_the_longest_message_is_read_quickly(text: str | None) -> None:
    text = text or " ".join(f"Word{number}x" for number in range(3_000))
    for number, read in enumerate(READERS):
        began = time.process_time()
        read(text)
        assert time.process_time() - began < 1, f"reader {number}"
