"""The example documents and questions, with the built-in encoder: what a first run shows."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.agent.knowledge.knowledge_base import KnowledgeBase, open_knowledge
from services.agent.schemas import RetrievedChunk

EXAMPLES = Path(__file__).parents[3] / "examples"
QUESTIONS: list[dict[str, Any]] = json.loads((EXAMPLES / "questions.json").read_text("utf-8"))


@pytest.fixture
async def knowledge(example_documents_url: str) -> AsyncIterator[KnowledgeBase]:
    async with open_knowledge(example_documents_url) as opened:
        yield opened


def _rank(chunks: list[RetrievedChunk], *, document: str, passage: str) -> int:
    ranks = (rank for rank, chunk in enumerate(chunks, start=1) if chunk.filename == document and passage in chunk.text)
    return next(ranks, len(chunks) + 1)


async def test_the_passage_that_answers_is_among_the_first_three(knowledge: KnowledgeBase) -> None:
    missed = []
    for question in QUESTIONS:
        if question["kind"] == "unanswerable":
            continue
        found = await knowledge.search.retrieve(question["question"], collection="default")
        assert found.stats.mode == "hybrid"
        for part in question.get("parts", [question]):
            passage = part.get("contains") or part["then_contains"]
            if (rank := _rank(found.chunks, document=part["document"], passage=passage)) > 3:
                missed.append((question["question"], part["document"], rank))
    assert missed == []


async def test_a_plain_questions_first_passage_is_in_its_language(knowledge: KnowledgeBase) -> None:
    for question in QUESTIONS:
        if question["kind"] == "plain":
            found = await knowledge.search.retrieve(question["question"], collection="default")
            assert (".zh." in found.chunks[0].filename) == (question["language"] == "zh")
