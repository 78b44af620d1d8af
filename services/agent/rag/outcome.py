"""What the pipeline comes to."""

from dataclasses import dataclass, field

from services.agent.request_context import AskBack
from services.agent.schemas import RagTrace, RetrievalStatus, RetrievedChunk


@dataclass(frozen=True, slots=True)
class RagOutcome:
    """The end of one question's retrieval; `status` is never NEEDS_REWRITE.

    `chunks` are the evidence that may be answered from, best first: citation [1] is the first. They are
    empty unless the status is ANSWERABLE or PARTIAL. `hitl` is set where the status is NEEDS_….
    """

    status: RetrievalStatus
    chunks: list[RetrievedChunk]
    trace: RagTrace
    hitl: AskBack | None
    original_question: str
    """The user's own words; `trace.query` is what was searched for them."""
    uncovered: list[str] = field(default_factory=list)
    """Sub-questions that nothing was found for."""
