"""One ranking out of two: reciprocal rank fusion, with a mild preference for the question's own language."""

from collections.abc import Sequence
from typing import Final

from services.agent.knowledge.index.base import Hit, StoredChunk
from services.agent.knowledge.tokenize import is_chinese

_RANK_OFFSET: Final = 60
_OTHER_LANGUAGE_WEIGHT: Final = 0.8


def fuse(query: str, rankings: Sequence[Sequence[Hit]], *, limit: int) -> list[StoredChunk]:
    """The chunks of all rankings, best first: each ranking gives 1 / (60 + rank)."""
    chunks: dict[str, StoredChunk] = {}
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, start=1):
            chunks[hit.chunk.chunk_id] = hit.chunk
            scores[hit.chunk.chunk_id] = scores.get(hit.chunk.chunk_id, 0.0) + 1 / (_RANK_OFFSET + rank)
    chinese = is_chinese(query)
    for chunk_id, chunk in chunks.items():
        if is_chinese(chunk.text) != chinese:
            scores[chunk_id] *= _OTHER_LANGUAGE_WEIGHT
    ordered = sorted(chunks, key=lambda chunk_id: (-scores[chunk_id], chunk_id))
    return [chunks[chunk_id] for chunk_id in ordered[:limit]]
