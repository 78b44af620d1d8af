"""The pipeline as the agent's tool."""

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from services.agent.errors import KnowledgeUnavailable
from services.agent.rag.outcome import RagOutcome
from services.agent.request_context import RagStepKind
from services.agent.schemas import RetrievalStatus
from services.agent.tools.knowledge import KNOWLEDGE_TOOL_NAME, make_knowledge_tool
from tests.integration.pipeline.scripted import (
    FAILED,
    Pipeline,
    ScriptedGrades,
    ScriptedSearch,
    context_for,
    which_product,
)

QUESTION = "How often does it take a sample?"


async def call(tool: BaseTool, query: str = QUESTION) -> ToolMessage:
    arguments: dict[str, Any] = {"name": tool.name, "args": {"query": query}, "id": "call-1", "type": "tool_call"}
    message = await tool.ainvoke(arguments)
    assert isinstance(message, ToolMessage)
    return message


async def test_the_tool_gives_evidence_as_text_and_the_outcome_as_artifact() -> None:
    context = context_for(QUESTION)
    message = await call(make_knowledge_tool(context, Pipeline().graph))
    assert isinstance(message.artifact, RagOutcome)
    assert str(message.content).splitlines()[0] == "ANSWERABLE"
    assert "[1] cedar-manual.md\n> Cedar samples every 10 s." in str(message.content)
    trace = context.take_rag_trace()
    assert trace == message.artifact.trace and trace is not None
    assert trace.tool_name == KNOWLEDGE_TOOL_NAME == "search_knowledge_base"
    assert context.take_rag_trace() is None
    assert context.drain_steps()[0].kind is RagStepKind.TOOL


async def test_a_second_search_in_a_turn_is_refused_without_searching() -> None:
    pipeline, context = Pipeline(), context_for(QUESTION)
    tool = make_knowledge_tool(context, pipeline.graph)
    await call(tool)
    trace = context.peek_rag_trace()
    second = await call(tool, "something else")
    assert str(second.content).startswith("TOOL_CALL_LIMIT_REACHED") and second.artifact is None
    assert pipeline.search.queries == [QUESTION]
    assert context.peek_rag_trace() == trace


async def test_a_question_back_is_given_with_its_options_and_kept_in_the_context() -> None:
    pipeline, context = Pipeline(grades=ScriptedGrades([which_product("Alder", "Cedar")])), context_for(QUESTION)
    message = await call(make_knowledge_tool(context, pipeline.graph))
    lines = str(message.content).splitlines()
    assert lines[0] == "NEEDS_SCOPE_SELECTION"
    assert lines[2:] == ["Question: Which product?", "Options:", "1. Alder", "2. Cedar"]
    assert "Cedar samples" not in str(message.content)
    assert context.ask_back is not None and context.ask_back.options == ["Alder", "Cedar"]
    assert message.artifact.status is RetrievalStatus.NEEDS_SCOPE_SELECTION


async def test_a_failed_search_ends_the_turn_instead_of_reaching_the_model() -> None:
    tool = make_knowledge_tool(context_for(QUESTION), Pipeline(ScriptedSearch(otherwise=FAILED)).graph)
    with pytest.raises(KnowledgeUnavailable):
        await call(tool)


async def test_a_models_query_loses_what_no_text_may_hold_and_what_is_too_long() -> None:
    pipeline, context = Pipeline(), context_for(QUESTION)
    await call(make_knowledge_tool(context, pipeline.graph), "How\0 often\ud83d? " + "长" * 20_000)
    [query] = pipeline.search.queries
    assert query.startswith("How often? 长") and len(query.encode()) <= 32_768
    trace = context.peek_rag_trace()
    assert trace is not None and trace.query == query
