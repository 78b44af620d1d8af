"""One graph serves all requests, and nothing of one shows in another."""

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from services.agent.knowledge.base import Retrieval, StageListener
from services.agent.models.base import GradedEvidence
from services.agent.rag.graph import build_rag_graph
from services.agent.schemas import RetrievalStatus, RetrievedChunk
from services.agent.tools.knowledge import make_knowledge_tool
from services.agent.usage import UsageListener
from tests.integration.pipeline.scripted import (
    ANSWERS,
    ScriptedGrades,
    ScriptedQuestions,
    ScriptedSearch,
    chunk,
    context_for,
    found,
    grade,
    which_product,
)


class EchoingSearch:
    """Finds the query itself, after giving every other request its turn."""

    async def retrieve(
        self, query: str, *, collection: str, top_k: int | None = None, on_stage: StageListener | None = None
    ) -> Retrieval:
        await asyncio.sleep(0)
        if on_stage:
            on_stage("auto_merge")
        await asyncio.sleep(0)
        return found(chunk(f"{collection}/{query}"))


async def test_requests_at_once_never_mix() -> None:
    def judge(question: str, chunks: Sequence[RetrievedChunk]) -> GradedEvidence:
        return which_product(f"option of {question}") if int(question.split()[-1]) % 2 else grade()

    graph = build_rag_graph(EchoingSearch(), ScriptedQuestions(), ScriptedGrades(judge))
    questions = [f"How long is cable {number}" for number in range(40)]
    contexts = [context_for(question, collection=f"c{number}") for number, question in enumerate(questions)]
    outcomes = await asyncio.gather(
        *(graph.run(context, question) for context, question in zip(contexts, questions, strict=True))
    )
    for number, (context, question, outcome) in enumerate(zip(contexts, questions, outcomes, strict=True)):
        context.close()
        details = [step.detail async for step in context.steps()]
        assert details.count(question) == 1
        assert not any(other in details for other in questions if other != question)
        assert context.peek_rag_trace() == outcome.trace
        assert [piece.text for piece in outcome.trace.initial_retrieved_chunks] == [f"c{number}/{question}"]
        if number % 2:
            assert outcome.hitl is not None and outcome.hitl.options == [f"option of {question}"]
        else:
            assert outcome.status is RetrievalStatus.ANSWERABLE and context.ask_back is None


class TalkingGrades:
    """Grades by a chat model, as an endpoint would."""

    async def grade(
        self, question: str, *, chunks: Sequence[RetrievedChunk], on_usage: UsageListener | None = None
    ) -> GradedEvidence:
        model = GenericFakeChatModel(messages=iter([AIMessage("SECRET VERDICT OF THE GRADER")]))
        await model.ainvoke(question)
        return ANSWERS


async def test_the_words_of_graders_never_reach_a_stream_of_the_agents_messages() -> None:
    graph = build_rag_graph(ScriptedSearch(), ScriptedQuestions(), TalkingGrades())
    tool = make_knowledge_tool(context_for("How long is it?"), graph)

    async def act(state: MessagesState) -> dict[str, Any]:
        call = {"name": tool.name, "args": {"query": "How long is it?"}, "id": "1", "type": "tool_call"}
        return {"messages": [await tool.ainvoke(call)]}

    agent = StateGraph(MessagesState)
    agent.add_node("act", act)
    agent.add_edge(START, "act")
    agent.add_edge("act", END)
    streamed = [
        str(event)
        async for event in agent.compile().astream(
            {"messages": []}, stream_mode=["messages", "updates", "custom"], subgraphs=True
        )
    ]
    assert any("ANSWERABLE" in event for event in streamed)
    assert not any("SECRET" in event for event in streamed)
