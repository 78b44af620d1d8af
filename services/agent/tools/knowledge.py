"""The knowledge search as the agent's tool: the pipeline, once a turn."""

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from services.agent.rag import wording
from services.agent.rag.graph import RagGraph
from services.agent.rag.outcome import RagOutcome
from services.agent.rag.prompts import TOOL_CALL_LIMIT_REACHED, evidence_message
from services.agent.rag.wording import Line
from services.agent.request_context import ChatRequestContext
from services.agent.texts import MAX_TEXT_BYTES, clean, cut

KNOWLEDGE_TOOL_NAME = "search_knowledge_base"

_DESCRIPTION = (
    "Searches the knowledge base, once in a turn. The first line of the result is its status: ANSWERABLE or PARTIAL "
    "with numbered evidence, NEEDS_CLARIFICATION or NEEDS_SCOPE_SELECTION with a question to put to the user, or "
    "NO_KNOWLEDGE."
)


class KnowledgeQuery(BaseModel):
    query: str = Field(description="The user's question, whole and understandable by itself, in the user's language.")


def make_knowledge_tool(context: ChatRequestContext, graph: RagGraph) -> BaseTool:
    """The tool of one request; its artifact is the RagOutcome, or None for a call past the turn's budget.

    The trace, and what is to be asked back, are kept in the context. What the graph raises ends the turn.
    """

    async def search_knowledge_base(query: str) -> tuple[str, RagOutcome | None]:
        if not context.acquire_knowledge_tool_slot():
            return TOOL_CALL_LIMIT_REACHED, None
        wording.tell(context, Line.TOOL_KNOWLEDGE)
        # The model wrote it: it may hold what no text may, and be as long as the model pleases.
        query = cut(clean(query), at_most=MAX_TEXT_BYTES)
        outcome = await graph.run(context, query, tool_name=KNOWLEDGE_TOOL_NAME)
        return evidence_message(outcome), outcome

    return StructuredTool.from_function(
        coroutine=search_knowledge_base,
        name=KNOWLEDGE_TOOL_NAME,
        description=_DESCRIPTION,
        args_schema=KnowledgeQuery,
        response_format="content_and_artifact",
    )


__all__ = ["KNOWLEDGE_TOOL_NAME", "make_knowledge_tool"]
