from collections.abc import Callable, Sequence
from typing import Any

import pytest

from services.agent.errors import CollectionNotFound
from services.agent.knowledge.base import Retrieval
from services.agent.knowledge.index.base import Hit, StoredChunk
from services.agent.knowledge.retrieve import RetrievalSettings, Retriever
from services.agent.schemas import CandidateKSource

Tree = Callable[[Sequence[Sequence[int]]], dict[str, StoredChunk]]
PLAIN = RetrievalSettings(auto_merge=False)


def _hits(index: Any, *scored: tuple[str, float]) -> list[Hit]:
    return [Hit(index.all_chunks[chunk_id], score) for chunk_id, score in scored]


def _fill(index: Any, tree: Tree, shape: Sequence[Sequence[int]]) -> None:
    index.all_chunks = tree(shape)


def _ids(retrieval: Retrieval) -> list[str]:
    return [chunk.chunk_id for chunk in retrieval.chunks]


@pytest.fixture
def filled(index: Any, tree: Tree) -> Any:
    """Two tops of two parents of three leaves; each search finds other leaves, one of them both."""
    _fill(index, tree, [[3, 3], [3, 3]])
    index.dense = _hits(index, ("0.0.0", 0.9), ("0.1.0", 0.8), ("1.0.0", 0.7))
    index.sparse = _hits(index, ("1.0.0", 12.0), ("1.1.0", 7.0))
    return index


async def test_what_both_searches_find_comes_first(filled: Any, encoder: Any) -> None:
    found = await Retriever(filled, encoder, PLAIN).retrieve("question", collection="default")
    assert _ids(found) == ["1.0.0", "0.0.0", "0.1.0", "1.1.0"]
    assert [chunk.rrf_rank for chunk in found.chunks] == [1, 2, 3, 4]
    assert [chunk.score for chunk in found.chunks] == [0.7, 0.9, 0.8, 0.25]
    assert (found.stats.mode, found.stats.recall_count, found.stats.empty) == ("hybrid", 4, False)
    assert (found.stats.pipeline, found.stats.leaf_level, found.stats.error) == ("recall", 3, "")
    assert found.rerank is not None
    assert found.rerank.enabled is False


async def test_a_question_is_embedded_once(filled: Any, encoder: Any) -> None:
    await Retriever(filled, encoder, RetrievalSettings()).retrieve("question", collection="default")
    assert encoder.calls == 1


async def test_without_the_encoder_terms_alone_are_searched(filled: Any, encoder: Any) -> None:
    encoder.broken = True
    found = await Retriever(filled, encoder, PLAIN).retrieve("question", collection="default")
    assert _ids(found) == ["1.0.0", "1.1.0"]
    assert found.stats.mode == "sparse_fallback"
    assert found.stats.error == "embedding failed: ConnectionError"
    assert found.chunks[0].score == 12.0


async def test_where_the_vector_search_fails_terms_alone_are_searched(filled: Any, encoder: Any) -> None:
    filled.broken = {"dense"}
    found = await Retriever(filled, encoder, PLAIN).retrieve("question", collection="default")
    assert _ids(found) == ["1.0.0", "1.1.0"]
    assert (found.stats.mode, found.stats.error) == ("sparse_fallback", "dense search failed: ConnectionError")


async def test_where_the_term_search_fails_vectors_alone_are_searched(filled: Any, encoder: Any) -> None:
    filled.broken = {"sparse"}
    found = await Retriever(filled, encoder, PLAIN).retrieve("question", collection="default")
    assert _ids(found) == ["0.0.0", "0.1.0", "1.0.0"]
    assert (found.stats.mode, found.stats.error) == ("dense_fallback", "sparse search failed: ConnectionError")


@pytest.mark.parametrize("broken", [{"dense", "sparse"}, {"index"}])
async def test_where_all_fails_the_result_is_empty_and_says_so(filled: Any, encoder: Any, broken: set[str]) -> None:
    filled.broken = broken
    found = await Retriever(filled, encoder, PLAIN).retrieve("question", collection="default")
    assert found.chunks == []
    assert (found.stats.mode, found.stats.empty) == ("failed", True)
    assert found.stats.error


async def test_where_merging_fails_the_leaves_stay(filled: Any, encoder: Any) -> None:
    filled.broken = {"chunks"}
    filled.dense = _hits(filled, ("0.0.0", 0.9), ("0.0.1", 0.8))
    filled.sparse = []
    found = await Retriever(filled, encoder, RetrievalSettings()).retrieve("question", collection="default")
    assert _ids(found) == ["0.0.0", "0.0.1"]
    assert found.stats.error == "auto-merge failed: ConnectionError"
    assert found.auto_merge is not None
    assert found.auto_merge.applied is False


async def test_a_collection_without_documents_is_unknown_but_for_the_default_one(index: Any, encoder: Any) -> None:
    retriever = Retriever(index, encoder, PLAIN)
    found = await retriever.retrieve("question", collection="default")
    assert found.chunks == []
    assert (found.stats.mode, found.stats.empty) == ("hybrid", True)
    with pytest.raises(CollectionNotFound):
        await retriever.retrieve("question", collection="other")


async def test_candidates_are_top_k_times_the_multiplier(filled: Any, encoder: Any) -> None:
    found = await Retriever(filled, encoder, PLAIN).retrieve("question", collection="default", top_k=2)
    assert filled.limits == [6]
    assert (found.stats.top_k, found.stats.candidate_k, found.stats.candidate_multiplier) == (2, 6, 3)
    assert found.stats.candidate_k_source is CandidateKSource.MULTIPLIER
    assert len(found.chunks) == 2


async def test_a_configured_candidate_k_is_used(filled: Any, encoder: Any) -> None:
    settings = RetrievalSettings(candidate_k=20, auto_merge=False)
    found = await Retriever(filled, encoder, settings).retrieve("question", collection="default")
    assert filled.limits == [20]
    assert found.stats.candidate_k_source is CandidateKSource.ENV
    assert found.stats.candidate_k_config_error == ""


async def test_a_candidate_k_below_top_k_is_told_and_not_used(filled: Any, encoder: Any) -> None:
    settings = RetrievalSettings(candidate_k=4, auto_merge=False)
    found = await Retriever(filled, encoder, settings).retrieve("question", collection="default")
    assert filled.limits == [24]
    assert found.stats.candidate_k_source is CandidateKSource.MULTIPLIER
    assert found.stats.candidate_k_config_error == "candidate_k 4 is less than top_k 8"


async def test_chunks_below_the_least_score_are_dropped(filled: Any, encoder: Any) -> None:
    settings = RetrievalSettings(auto_merge=False, min_score=0.75)
    found = await Retriever(filled, encoder, settings).retrieve("question", collection="default")
    assert _ids(found) == ["0.0.0", "0.1.0"]


async def test_stages_are_told_as_they_begin_and_timed(filled: Any, encoder: Any) -> None:
    heard: list[str] = []
    found = await Retriever(filled, encoder, RetrievalSettings()).retrieve(
        "question", collection="default", on_stage=heard.append
    )
    assert heard == ["retrieve", "auto_merge"]
    assert [timing.stage for timing in found.timings] == heard
    assert found.timings[0].start_ms == 0
    assert found.stats.pipeline == "recall_merge"


async def test_the_questions_language_comes_first_among_equals(index: Any, encoder: Any, tree: Tree) -> None:
    _fill(index, tree, [[1, 1]])
    for chunk_id, text in (("0.0.0", "白桦系列的保修期为两年。"), ("0.1.0", "The warranty is two years.")):
        old = index.all_chunks[chunk_id]
        index.all_chunks[chunk_id] = StoredChunk(chunk_id, old.parent_id, 3, "a.md", "", text)
    index.dense = _hits(index, ("0.0.0", 0.8), ("0.1.0", 0.79))
    english = await Retriever(index, encoder, PLAIN).retrieve("How long is the warranty?", collection="default")
    chinese = await Retriever(index, encoder, PLAIN).retrieve("保修期多长？", collection="default")
    assert _ids(english) == ["0.1.0", "0.0.0"]
    assert _ids(chinese) == ["0.0.0", "0.1.0"]


async def test_siblings_give_way_to_their_parent_with_the_best_rank_and_score(
    index: Any, encoder: Any, tree: Tree
) -> None:
    _fill(index, tree, [[3, 3]])
    index.dense = _hits(index, ("0.1.0", 0.9), ("0.0.2", 0.6), ("0.0.0", 0.7))
    found = await Retriever(index, encoder, RetrievalSettings()).retrieve("question", collection="default")
    assert _ids(found) == ["0.1.0", "0.0"]
    assert (found.chunks[1].rrf_rank, found.chunks[1].score) == (2, 0.7)
    assert found.auto_merge is not None
    stats = found.auto_merge
    assert (stats.enabled, stats.applied, stats.threshold) == (True, True, 2)
    assert (stats.replaced_chunks, stats.steps, stats.post_merge_candidate_count) == (2, 1, 2)


async def test_merged_parents_merge_on_and_take_in_what_their_own_parent_holds(
    index: Any, encoder: Any, tree: Tree
) -> None:
    _fill(index, tree, [[2, 2, 1], [1]])
    index.dense = _hits(
        index, ("1.0.0", 0.9), ("0.2.0", 0.85), ("0.0.0", 0.8), ("0.1.0", 0.7), ("0.0.1", 0.6), ("0.1.1", 0.5)
    )
    found = await Retriever(index, encoder, RetrievalSettings()).retrieve("question", collection="default")
    assert _ids(found) == ["1.0.0", "0"]
    assert (found.chunks[1].rrf_rank, found.chunks[1].score) == (2, 0.85)
    assert found.auto_merge is not None
    stats = found.auto_merge
    assert (stats.replaced_chunks, stats.steps, stats.post_merge_candidate_count) == (7, 2, 2)


async def test_fewer_siblings_than_the_threshold_stay_as_they_are(index: Any, encoder: Any, tree: Tree) -> None:
    _fill(index, tree, [[3, 3]])
    index.dense = _hits(index, ("0.0.0", 0.9), ("0.0.1", 0.8))
    settings = RetrievalSettings(auto_merge_threshold=3)
    found = await Retriever(index, encoder, settings).retrieve("question", collection="default")
    assert _ids(found) == ["0.0.0", "0.0.1"]
    assert found.auto_merge is not None
    assert (found.auto_merge.applied, found.auto_merge.steps) == (False, 0)
