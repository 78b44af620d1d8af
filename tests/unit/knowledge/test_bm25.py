import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.agent.knowledge.bm25 import TermStatistics, bm25

_leaf = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=30)


def _reference(query: set[str], leaf: list[str], collection: list[list[str]]) -> float:
    """BM25 as Robertson and Zaragoza write it, with k1 = 1.2, b = 0.75 and an idf above zero."""
    average = sum(map(len, collection)) / len(collection)
    score = 0.0
    for term in query:
        holding = sum(term in other for other in collection)
        idf = math.log(1 + (len(collection) - holding + 0.5) / (holding + 0.5))
        frequency = leaf.count(term)
        score += idf * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * len(leaf) / average))
    return score


@given(st.lists(_leaf, min_size=1, max_size=8), st.sets(st.sampled_from("abcdefg"), min_size=1))
def test_scores_are_those_of_the_formula(collection: list[list[str]], query: set[str]) -> None:
    frequencies = {term: sum(term in leaf for leaf in collection) for term in query}
    statistics = TermStatistics(
        leaf_count=len(collection),
        term_total=sum(map(len, collection)),
        document_frequencies={term: count for term, count in frequencies.items() if count},
    )
    for leaf in collection:
        counts = {term: count for term, count in Counter(leaf).items() if term in query}
        score = bm25(counts, length=len(leaf), statistics=statistics)
        assert math.isclose(score, _reference(query, leaf, collection), abs_tol=1e-12)
        assert score >= 0
