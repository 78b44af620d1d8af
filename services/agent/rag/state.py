"""What one question's way through the pipeline gathers."""

import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

from services.agent.knowledge.base import Retrieval
from services.agent.models.base import GradedEvidence
from services.agent.rag.decision import Decision
from services.agent.rag.outcome import RagOutcome
from services.agent.request_context import ChatRequestContext
from services.agent.schemas import (
    ComplexityPlan,
    HitlTrace,
    QueryRewrite,
    RagSubTrace,
    RetrievalStage,
    RetrievedChunk,
    StageTiming,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one sub-agent came back with; `graded` and `decision` are None where its retrieval failed."""

    place: int
    """The sub-question's in the plan, from 0."""
    question: str
    chunks: list[RetrievedChunk]
    graded: GradedEvidence | None
    decision: Decision | None
    trace: RagSubTrace


@dataclass(frozen=True, slots=True)
class RagRun:
    """What the graph hands to each of its nodes: the request that it runs for."""

    request: ChatRequestContext


class RagQuestion(TypedDict):
    """What a run of the graph begins with."""

    question: str
    original_question: str
    tool_name: str


class RagState(TypedDict, total=False):
    """The state of the graph, of a sub-agent and of a resumption alike; each fills what it comes to.

    Only `findings` is written by several at once.
    """

    question: str
    """What is searched for and graded against."""
    original_question: str
    """The user's first words."""
    tool_name: str
    group: str
    """Of a sub-agent: its number, "1" to "4"."""
    plan: ComplexityPlan
    stage: RetrievalStage
    """Of the last retrieval, or SYNTHESIS."""
    retrieval: Retrieval
    evidence: dict[RetrievalStage, list[RetrievedChunk]]
    """What each retrieval found."""
    chunks: list[RetrievedChunk]
    """What an answer may rest on, if it comes to one."""
    graded: GradedEvidence
    decision: Decision
    rewrite: QueryRewrite | None
    rewrite_count: int
    findings: Annotated[list[Finding], operator.add]
    sub_traces: list[RagSubTrace]
    uncovered: list[str]
    answers: list[str]
    """What the user has answered so far, oldest first."""
    resumed: HitlTrace
    """Of a resumption: what had been asked, and the answer."""
    timings: list[StageTiming]
    outcome: RagOutcome


class RagResult(TypedDict):
    outcome: RagOutcome
