"""From a question to its evidence: recall, fusion, auto-merging, the best few."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from services.agent.errors import CollectionNotFound, KnowledgeUnavailable
from services.agent.knowledge.base import Retrieval, RetrievalStageName, StageListener
from services.agent.knowledge.chunking import LEAF_LEVEL
from services.agent.knowledge.embedding import Encoder
from services.agent.knowledge.fusion import fuse
from services.agent.knowledge.index.base import Hit, IndexView, KnowledgeIndex
from services.agent.knowledge.merging import Candidate, auto_merge
from services.agent.knowledge.naming import DEFAULT_COLLECTION
from services.agent.schemas import (
    AutoMergeStats,
    CandidateKSource,
    RerankStats,
    RetrievalStats,
    RetrievedChunk,
    StageTiming,
)
from services.runtime.errors import ServiceError

_MAX_EMBEDDED_QUERY_CHARACTERS: Final = 2_000
_MAX_SEARCHED_QUERY_CHARACTERS: Final = 20_000

_Found = TypeVar("_Found")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RetrievalSettings:
    top_k: int = 8
    """Chunks in the result, where the caller does not say."""
    candidate_k: int | None = None
    """Leaves that are recalled; None, or less than top_k: top_k × candidate_multiplier."""
    candidate_multiplier: int = 3
    auto_merge: bool = True
    auto_merge_threshold: int = 2
    """Siblings that must be found together for their parent to replace them."""
    min_score: float = 0.0
    """Chunks that score less are dropped; 0 drops none."""


class Retriever:
    """KnowledgeSearch over an index and the encoder that it was opened for."""

    def __init__(self, index: KnowledgeIndex, encoder: Encoder, settings: RetrievalSettings):
        self._index = index
        self._encoder = encoder
        self._settings = settings

    async def retrieve(
        self, query: str, *, collection: str, top_k: int | None = None, on_stage: StageListener | None = None
    ) -> Retrieval:
        run = _Run(self._settings, query, top_k or self._settings.top_k, on_stage)
        run.begin("retrieve")
        vector = await run.attempt("embedding", lambda: self._embed(query))
        try:
            async with self._index.view(collection) as view:
                return await run.search(view, vector)
        except CollectionNotFound:
            if collection != DEFAULT_COLLECTION:
                raise
            return run.result([])
        except KnowledgeUnavailable as error:
            return run.failed(error)

    async def _embed(self, query: str) -> Sequence[float]:
        vectors = await self._encoder.encode([query[:_MAX_EMBEDDED_QUERY_CHARACTERS]])
        return [float(value) for value in vectors[0]]


class _Run:
    """One retrieval under way, and the numbers that are kept of it."""

    def __init__(self, settings: RetrievalSettings, query: str, top_k: int, on_stage: StageListener | None):
        self._settings = settings
        self._query = query[:_MAX_SEARCHED_QUERY_CHARACTERS]
        self._top_k = top_k
        self._on_stage = on_stage
        self._began = time.monotonic()
        self._stages: list[tuple[RetrievalStageName, float]] = []
        self._failures: list[str] = []
        self._stats = self._planned()
        self._auto_merge: AutoMergeStats | None = None

    def _planned(self) -> RetrievalStats:
        settings = self._settings
        stats = RetrievalStats(
            mode="hybrid",
            pipeline="recall_merge" if settings.auto_merge else "recall",
            candidate_k=self._top_k * settings.candidate_multiplier,
            candidate_k_source=CandidateKSource.MULTIPLIER,
            candidate_multiplier=settings.candidate_multiplier,
            top_k=self._top_k,
            recall_count=0,
            leaf_level=LEAF_LEVEL,
        )
        if settings.candidate_k is None:
            return stats
        if settings.candidate_k < self._top_k:
            stats.candidate_k_config_error = f"candidate_k {settings.candidate_k} is less than top_k {self._top_k}"
            return stats
        stats.candidate_k = settings.candidate_k
        stats.candidate_k_source = CandidateKSource.ENV
        return stats

    def begin(self, stage: RetrievalStageName) -> None:
        self._stages.append((stage, time.monotonic()))
        if self._on_stage is not None:
            self._on_stage(stage)

    async def attempt(self, part: str, call: Callable[[], Awaitable[_Found]]) -> _Found | None:
        """What the call gives, or None where it fails: the retrieval goes on with the other parts."""
        try:
            return await call()
        except Exception as error:
            # Whatever breaks one part must not cost the answer; the trace and the log tell of it.
            reason = error.reason if isinstance(error, ServiceError) else type(error).__name__
            self._failures.append(f"{part} failed: {reason}")
            _log.warning("knowledge.part_failed", part=part, reason=reason)
            return None

    async def search(self, view: IndexView, vector: Sequence[float] | None) -> Retrieval:
        limit = self._stats.candidate_k or self._top_k
        dense = None
        if vector is not None:
            dense = await self.attempt("dense search", lambda: view.search_vectors(vector, limit=limit))
        sparse = await self.attempt("sparse search", lambda: view.search_text(self._query, limit=limit))
        if dense is None and sparse is None:
            return self.failed()
        self._stats.mode = "sparse_fallback" if dense is None else "dense_fallback" if sparse is None else "hybrid"
        candidates = await self._fused(view, dense, sparse, vector=vector, limit=limit)
        if self._settings.auto_merge:
            candidates = await self._merged(view, candidates)
        return self.result(candidates)

    async def _fused(
        self,
        view: IndexView,
        dense: list[Hit] | None,
        sparse: list[Hit] | None,
        *,
        vector: Sequence[float] | None,
        limit: int,
    ) -> list[Candidate]:
        chunks = fuse(self._query, [ranking for ranking in (dense, sparse) if ranking], limit=limit)
        self._stats.recall_count = len(chunks)
        if dense is None or vector is None:
            scores = {hit.chunk.chunk_id: hit.score for hit in sparse or ()}
        else:
            scores = {hit.chunk.chunk_id: hit.score for hit in dense}
            unknown = [chunk.chunk_id for chunk in chunks if chunk.chunk_id not in scores]
            if unknown:
                found = await self.attempt("similarity", lambda: view.similarities(vector, unknown))
                scores.update(found or {})
        return [
            Candidate(chunk, rank=rank, score=scores.get(chunk.chunk_id)) for rank, chunk in enumerate(chunks, start=1)
        ]

    async def _merged(self, view: IndexView, candidates: list[Candidate]) -> list[Candidate]:
        self.begin("auto_merge")
        threshold = self._settings.auto_merge_threshold
        done = await self.attempt("auto-merge", lambda: auto_merge(view, candidates, threshold=threshold))
        if done is None:
            self._auto_merge = AutoMergeStats(enabled=True, applied=False, threshold=threshold)
            return candidates
        merged, self._auto_merge = done
        return merged

    def failed(self, error: ServiceError | None = None) -> Retrieval:
        if error is not None:
            self._failures.append(f"index failed: {error.reason}")
        self._stats.mode = "failed"
        return self.result([])

    def result(self, candidates: Sequence[Candidate]) -> Retrieval:
        passed = [candidate for candidate in candidates if self._scores_enough(candidate)][: self._top_k]
        self._stats.empty = not passed
        self._stats.error = "; ".join(self._failures)
        return Retrieval(
            chunks=[_retrieved(candidate) for candidate in passed],
            stats=self._stats,
            auto_merge=self._auto_merge or AutoMergeStats(enabled=self._settings.auto_merge, applied=False),
            rerank=RerankStats(enabled=False),
            timings=self._timings(),
        )

    def _scores_enough(self, candidate: Candidate) -> bool:
        # Scores of a search by terms alone are on another scale.
        if self._settings.min_score <= 0 or self._stats.mode == "sparse_fallback" or candidate.score is None:
            return True
        return candidate.score >= self._settings.min_score

    def _timings(self) -> list[StageTiming]:
        ends = [began for _, began in self._stages[1:]] + [time.monotonic()]
        return [
            StageTiming(
                stage=stage,
                start_ms=round((began - self._began) * 1000),
                elapsed_ms=round((end - began) * 1000),
            )
            for (stage, began), end in zip(self._stages, ends, strict=True)
        ]


def _retrieved(candidate: Candidate) -> RetrievedChunk:
    return RetrievedChunk(
        filename=candidate.chunk.filename,
        page_number=candidate.chunk.page_number,
        text=candidate.chunk.text,
        score=candidate.score,
        rrf_rank=candidate.rank,
        chunk_id=candidate.chunk.chunk_id,
    )
