"""What the rest of the agent asks of its documents."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from services.agent.schemas import AutoMergeStats, RerankStats, RetrievalStats, RetrievedChunk, StageTiming

RetrievalStageName = Literal["retrieve", "auto_merge", "rerank"]
StageListener = Callable[[RetrievalStageName], None]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What one query found, best first, and the numbers behind it.

    `timings` are of the stages that ran; their `start_ms` counts from the beginning of the retrieval.
    """

    chunks: list[RetrievedChunk]
    stats: RetrievalStats
    auto_merge: AutoMergeStats | None = None
    rerank: RerankStats | None = None
    timings: list[StageTiming] = field(default_factory=list)


class KnowledgeSearch(Protocol):
    """Searches one collection of documents."""

    async def retrieve(
        self, query: str, *, collection: str, top_k: int | None = None, on_stage: StageListener | None = None
    ) -> Retrieval:
        """Recalls, fuses, merges, reranks; `on_stage` hears of each stage as it begins, on the loop.

        A part that fails gives way to the next best (`stats.mode` and `stats.error` tell); where all fail
        the result is empty with mode "failed". Raises CollectionNotFound for a collection that has no
        documents, except "default", which is then searched as empty; EncoderMismatch where another
        encoder filled it.
        """
        ...
