"""The pipeline as a graph: compiled once at start, run for each request with that request's context."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send

from services.agent.knowledge.base import KnowledgeSearch
from services.agent.models.base import GradeModel, QuestionModel
from services.agent.rag.nodes import RagNodes
from services.agent.rag.outcome import RagOutcome
from services.agent.rag.resume import resume
from services.agent.rag.state import RagQuestion, RagResult, RagRun, RagState
from services.agent.request_context import ChatRequestContext
from services.agent.schemas import PendingHitlState, RetrievalStage, Route

Stage = Callable[[RagState, ChatRequestContext], Awaitable[RagState]]

_ENDS = {
    Route.ANSWER: "answer",
    Route.CLARIFY: "ask_back",
    Route.SCOPE_SELECT: "ask_back",
    Route.NO_KNOWLEDGE: "nothing_known",
}


class RagGraph:
    """Answers from the documents, or asks back; safe for any number of requests at once."""

    def __init__(self, compiled: CompiledStateGraph[RagState, RagRun, RagQuestion, RagResult], nodes: RagNodes) -> None:
        self._compiled = compiled
        self._nodes = nodes

    async def run(self, context: ChatRequestContext, query: str, *, tool_name: str = "") -> RagOutcome:
        """Takes a query through the graph, and keeps its trace and what it asks back in the context.

        A blank query stands for the user's own question. Raises KnowledgeUnavailable where no search
        worked, and whatever the ports raise. Cancelling it cancels all that is under way.
        """
        question = RagQuestion(
            question=query.strip() or context.question, original_question=context.question, tool_name=tool_name
        )
        # An agent's run that this is called within must not see into it: by the runnable config that
        # LangChain hands down, the text of graders would reach whoever streams the agent's messages.
        handed_down = var_child_runnable_config.set(None)
        try:
            result = await self._compiled.ainvoke(question, context=RagRun(context))
        finally:
            var_child_runnable_config.reset(handed_down)
        outcome: RagOutcome = result["outcome"]
        context.store_rag_trace(outcome.trace, ask_back=outcome.hitl)
        return outcome

    async def resume(self, context: ChatRequestContext, pending: PendingHitlState, answer: str) -> RagOutcome:
        """Goes on with a question that the user has answered; otherwise as `run`."""
        outcome = await resume(self._nodes, context=context, pending=pending, answer=answer)
        context.store_rag_trace(outcome.trace, ask_back=outcome.hitl)
        return outcome


def build_rag_graph(search: KnowledgeSearch, question_model: QuestionModel, grade_model: GradeModel) -> RagGraph:
    nodes = RagNodes(search=search, question_model=question_model, grade_model=grade_model)
    graph = StateGraph(RagState, RagRun, input_schema=RagQuestion, output_schema=RagResult)
    stages = {
        "classify": nodes.classify,
        "retrieve": nodes.retrieve,
        "grade": nodes.grade,
        "rewrite": nodes.rewrite,
        "sub_agent": nodes.sub_agent,
        "synthesize": nodes.synthesize,
        "answer": nodes.answer,
        "ask_back": nodes.ask_back,
        "nothing_known": nodes.nothing_known,
    }
    for name, stage in stages.items():
        graph.add_node(name, _node(stage))

    ends = list(dict.fromkeys(_ENDS.values()))
    graph.add_edge(START, "classify")
    graph.add_conditional_edges("classify", _after_classify, ["retrieve", "sub_agent"])
    graph.add_edge("retrieve", "grade")
    graph.add_conditional_edges("grade", _after_grade, ["rewrite", *ends])
    graph.add_conditional_edges("rewrite", _after_rewrite, ["retrieve", *ends])
    graph.add_edge("sub_agent", "synthesize")
    graph.add_conditional_edges("synthesize", _end, ends)
    for end in ends:
        graph.add_edge(end, END)
    return RagGraph(graph.compile(name="rag"), nodes)


class _Node(Protocol):
    def __call__(self, state: RagState, *, runtime: Runtime[RagRun]) -> Awaitable[RagState]: ...


def _node(stage: Stage) -> _Node:
    async def node(state: RagState, *, runtime: Runtime[RagRun]) -> RagState:
        return await stage(state, runtime.context.request)

    return node


def _after_classify(state: RagState) -> str | list[Send]:
    parts = state["plan"].sub_questions
    if not parts:
        return "retrieve"
    sub_states = [
        RagState(question=part, group=str(number), stage=RetrievalStage.INITIAL, timings=[])
        for number, part in enumerate(parts, start=1)
    ]
    return [Send("sub_agent", sub_state) for sub_state in sub_states]


def _after_grade(state: RagState) -> str:
    return "rewrite" if state["decision"].route is Route.REWRITE else _end(state)


def _after_rewrite(state: RagState) -> str:
    return "retrieve" if state["rewrite"] else _end(state)


def _end(state: RagState) -> str:
    return _ENDS[state["decision"].route]
