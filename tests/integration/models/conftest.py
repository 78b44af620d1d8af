"""The example documents and the whole pipeline over them with the built-in models."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.agent.knowledge.knowledge_base import open_knowledge
from services.agent.models.extractive import ExtractiveChatModel, ExtractiveGradeModel, ExtractiveQuestionModel
from services.agent.rag.graph import build_rag_graph
from services.agent.request_context import AskBack, ChatRequestContext
from services.agent.runtime import AnsweringAgent
from services.agent.schemas import HitlState, PendingHitlState, RagTrace
from services.agent.turn import Turn

EXAMPLES = Path(__file__).parents[3] / "examples"


class Conversation:
    """Asks the agent one question, and answers what it asks back."""

    def __init__(self, agent: AnsweringAgent) -> None:
        self._agent = agent
        self.asked_back: AskBack | None = None
        self.trace: RagTrace | None = None

    async def say(self, message: str) -> str:
        """The agent's answer; empty where it asks back."""
        claimed = self._claimed()
        context = ChatRequestContext.for_sync(
            user_id="u",
            session_id="s",
            question=claimed.original_question if claimed else message,
            collection="default",
        )
        turn = Turn(
            user_id="u",
            session_id="s",
            run_id="r",
            request_id="q",
            fencing_token=1,
            lease_s=30,
            human_position=1,
            human_message_id="m",
            title="t",
            claimed=claimed,
        )
        answer = ""
        self.asked_back = None
        async for said in self._agent.answer(turn, message=message, context=context):
            if isinstance(said, str):
                answer += said
            elif isinstance(said, AskBack):
                self.asked_back = said
        self.trace = context.take_rag_trace()
        return answer

    def _claimed(self) -> PendingHitlState | None:
        if (asked := self.asked_back) is None:
            return None
        return PendingHitlState(
            task_id="t",
            original_question=asked.original_question,
            prompt=asked.prompt,
            options=list(asked.options),
            kind=asked.kind,
            state=HitlState.CLAIMED,
            answers=list(asked.answers),
            resume_state=asked.resume_state,
        )


@pytest.fixture(scope="session")
async def agent(example_documents_url: str) -> AsyncIterator[AnsweringAgent]:
    async with open_knowledge(example_documents_url) as knowledge:
        graph = build_rag_graph(knowledge.search, ExtractiveQuestionModel(), ExtractiveGradeModel())
        yield AnsweringAgent(model=ExtractiveChatModel(), graph=graph)


@pytest.fixture
def conversation(agent: AnsweringAgent) -> Conversation:
    return Conversation(agent)


@pytest.fixture(scope="session")
def questions() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((EXAMPLES / "questions.json").read_text(encoding="utf-8"))
    return loaded
