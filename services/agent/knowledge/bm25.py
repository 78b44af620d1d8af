"""BM25 over candidates, from their own term counts and the collection's document frequencies."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_SATURATION: Final = 1.2
_LENGTH_WEIGHT: Final = 0.75


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """What BM25 needs to know of a whole collection; its documents are the leaves."""

    leaf_count: int
    term_total: int
    document_frequencies: Mapping[str, int]


def bm25(term_counts: Mapping[str, int], *, length: int, statistics: TermStatistics) -> float:
    """The score of a leaf of `length` terms that holds the query's terms this often."""
    average = statistics.term_total / statistics.leaf_count
    norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length / average)
    return sum(
        inverse_document_frequency(statistics.document_frequencies[term], leaf_count=statistics.leaf_count)
        * count
        * (_SATURATION + 1)
        / (count + norm)
        for term, count in term_counts.items()
    )


def inverse_document_frequency(document_frequency: int, *, leaf_count: int) -> float:
    """How telling a term is; never negative, also for one that most leaves hold."""
    return math.log1p((leaf_count - document_frequency + 0.5) / (document_frequency + 0.5))
