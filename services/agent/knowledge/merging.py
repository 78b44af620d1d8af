"""Auto-merging: sibling chunks that were found together give way to the parent that holds them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.agent.knowledge.chunking import LEAF_LEVEL
from services.agent.knowledge.index.base import IndexView, StoredChunk
from services.agent.schemas import AutoMergeStats


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk on its way to the result; a parent has the best rank and score of those it stands for.

    It also tells the page of the best of them: that is the one to look at, where it reaches over several.
    """

    chunk: StoredChunk
    rank: int
    score: float | None


async def auto_merge(
    view: IndexView, candidates: Sequence[Candidate], *, threshold: int
) -> tuple[list[Candidate], AutoMergeStats]:
    """Merges leaves into their parents, and those into theirs; the order stays that of the best rank."""
    merged = list(candidates)
    replaced = steps = 0
    for level in range(LEAF_LEVEL, 1, -1):
        siblings: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in merged:
            if candidate.chunk.level == level and candidate.chunk.parent_id is not None:
                siblings[candidate.chunk.parent_id].append(candidate)
        due = {parent_id: group for parent_id, group in siblings.items() if len(group) >= threshold}
        if not due:
            break
        parents = await view.chunks(due)
        gone = {candidate.chunk.chunk_id for group in due.values() for candidate in group}
        kept = [candidate for candidate in merged if candidate.chunk.chunk_id not in gone]
        kept.extend(_parent_of(parents[parent_id], group) for parent_id, group in due.items())
        merged = kept
        replaced += len(gone)
        steps += 1
    merged, covered = await _without_covered(view, merged)
    merged.sort(key=lambda candidate: candidate.rank)
    return merged, AutoMergeStats(
        enabled=True,
        applied=steps > 0,
        threshold=threshold,
        replaced_chunks=replaced + covered,
        steps=steps,
        post_merge_candidate_count=len(merged),
    )


def _parent_of(parent: StoredChunk, group: Sequence[Candidate]) -> Candidate:
    scores = [candidate.score for candidate in group if candidate.score is not None]
    best = min(group, key=lambda candidate: candidate.rank)
    chunk = replace(parent, page_number=best.chunk.page_number)
    return Candidate(chunk, rank=best.rank, score=max(scores, default=None))


async def _without_covered(view: IndexView, candidates: list[Candidate]) -> tuple[list[Candidate], int]:
    """Drops leaves whose grandparent is in the list already, and hands their rank and score on to it."""
    top = {candidate.chunk.chunk_id: candidate for candidate in candidates if candidate.chunk.level == 1}
    leaves = [candidate for candidate in candidates if candidate.chunk.level == LEAF_LEVEL]
    if not top or not leaves:
        return candidates, 0
    parents = await view.chunks({leaf.chunk.parent_id for leaf in leaves if leaf.chunk.parent_id is not None})
    kept = [candidate for candidate in candidates if candidate.chunk.level == 2]
    covered = 0
    for leaf in leaves:
        parent = parents.get(leaf.chunk.parent_id or "")
        over = None if parent is None or parent.parent_id is None else top.get(parent.parent_id)
        if over is None:
            kept.append(leaf)
            continue
        top[over.chunk.chunk_id] = _parent_of(over.chunk, [over, leaf])
        covered += 1
    return [*kept, *top.values()], covered
