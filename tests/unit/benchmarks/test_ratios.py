"""The bounds, from figures that are made up."""

from typing import Any

import pytest

from benchmarks.ratios import MANY_USERS, ONE_PROCESS, ONE_USER, TWO_PROCESSES, Ratio, ratios
from benchmarks.results import GRID, HISTORY, LISTS, PROCESSES, SPREAD, Cell, Memory, Results
from benchmarks.subjects.base import APPEND, LIST, NEWEST, WHOLE
from benchmarks.subjects.registry import ADK, BARE, LANGCHAIN, OURS, UNCACHED


def _cell(subject: str, operation: str, **fields: Any) -> Cell:
    given: dict[str, Any] = {"part": GRID, "messages": 100, "callers": 1, "calls": 1}
    return Cell(subject=subject, operation=operation, **given | fields)


def _found(*cells: Cell, what: str, memory: Memory | None = None) -> Ratio:
    results = Results(machine={}, cells=list(cells), memory=memory)
    (found,) = [ratio for ratio in ratios(results) if what in ratio.what]
    return found


@pytest.mark.parametrize(("ours_ms", "holds"), [(2.7, True), (2.8, False)])
def test_an_append_may_take_so_much_longer_than_the_bare_handlers(ours_ms: float, holds: bool) -> None:
    found = _found(
        _cell(OURS, APPEND, p50_ms=ours_ms), _cell(BARE, APPEND, p50_ms=2.0), what="one caller, beside the bare handler"
    )
    assert found.value == pytest.approx(ours_ms / 2)
    assert found.holds is holds


@pytest.mark.parametrize(("ours", "holds"), [(750.0, True), (749.0, False)])
def test_throughput_has_a_floor(ours: float, holds: bool) -> None:
    found = _found(
        _cell(OURS, APPEND, callers=64, per_second=ours),
        _cell(BARE, APPEND, callers=64, per_second=1_000.0),
        what="64 callers, beside the bare handler",
    )
    assert found.holds is holds


def test_what_was_not_measured_neither_holds_nor_fails() -> None:
    assert {ratio.holds for ratio in ratios(Results(machine={}))} == {None}


def test_a_cell_without_figures_counts_as_not_measured() -> None:
    cells = [_cell(OURS, APPEND, p50_ms=1.0), _cell(BARE, APPEND, skipped="it takes too long")]
    assert _found(*cells, what="one caller, beside the bare handler").holds is None


def test_a_peer_is_met_at_the_size_that_suits_it_best() -> None:
    cells = [
        _cell(subject, APPEND, messages=messages, p50_ms=p50)
        for messages, ours, theirs in ((10, 2.0, 1.0), (1_000, 2.0, 8.0))
        for subject, p50 in ((OURS, ours), (ADK, theirs))
    ]
    found = _found(*cells, what="append, p50 of one caller, beside Google ADK")
    assert (found.value, found.holds, found.note) == (2.0, False, "at worst, at 10 messages")


def test_a_bare_insert_may_be_faster_to_a_point() -> None:
    cells = [_cell(OURS, APPEND, p50_ms=1.7), _cell(LANGCHAIN, APPEND, p50_ms=1.0)]
    assert _found(*cells, what="append, p50 of one caller, beside langchain-postgres").holds


def test_a_warm_read_is_measured_against_one_without_cache() -> None:
    cells = [_cell(OURS, NEWEST, p50_ms=1.5), _cell(UNCACHED, NEWEST, p50_ms=3.0)]
    found = _found(*cells, what="beside ours without cache")
    assert (found.value, found.holds) == (0.5, True)


def test_sessions_shorter_than_what_is_read_do_not_count_as_reading_the_newest_100() -> None:
    cells = [_cell(subject, NEWEST, messages=10, p50_ms=1.0) for subject in (OURS, BARE)]
    assert _found(*cells, what="newest 100 with traces, warm, p50 beside the bare handler").value is None


def test_no_peer_may_load_a_thousand_messages_nearly_as_fast() -> None:
    cells = [_cell(OURS, WHOLE, messages=1_000, p50_ms=10.0), _cell(ADK, WHOLE, messages=1_000, p50_ms=19.0)]
    found = _found(*cells, what="all of 1,000 messages, p50 of Google ADK")
    assert (found.value, found.holds) == (1.9, False)


def test_the_longest_and_the_shortest_history_are_compared() -> None:
    cells = [_cell(OURS, APPEND, part=HISTORY, messages=size, p50_ms=p50) for size, p50 in ((10, 2.0), (10_000, 2.1))]
    found = _found(*cells, what="append, p50 to a long session")
    assert found.value == pytest.approx(1.05)


def test_one_busy_user_is_compared_with_many() -> None:
    cells = [
        _cell(OURS, APPEND, part=SPREAD, callers=64, variant=variant, per_second=rate)
        for variant, rate in ((MANY_USERS, 1_000.0), (ONE_USER, 600.0))
    ]
    found = _found(*cells, what="append, throughput of 64 callers on one user's")
    assert (found.value, found.holds) == (0.6, False)


@pytest.mark.parametrize(("busy", "holds"), [(1.0, None), (0.5, False)])
def test_a_machine_that_is_full_with_one_process_is_no_proof_against_two(busy: float, holds: bool | None) -> None:
    cells = [
        _cell(OURS, NEWEST, part=PROCESSES, callers=64, variant=variant, per_second=rate, busy=busy)
        for variant, rate in ((ONE_PROCESS, 1_000.0), (TWO_PROCESSES, 1_100.0))
    ]
    assert _found(*cells, what="newest, throughput of two storage processes").holds is holds


def test_a_long_list_is_compared_with_a_short_one() -> None:
    cells = [_cell(OURS, LIST, part=LISTS, sessions=size, p50_ms=p50) for size, p50 in ((100, 1.0), (10_000, 1.2))]
    found = _found(*cells, what="first 100 sessions")
    assert (found.value, found.holds) == (1.2, True)


def test_one_list_alone_says_nothing() -> None:
    assert _found(_cell(OURS, LIST, part=LISTS, sessions=100, p50_ms=1.0), what="first 100 sessions").value is None


def test_memory_is_what_reading_added() -> None:
    memory = Memory(at_rest=100.0, after_reading=151.0, sessions=500, messages=100)
    assert _found(what="at rest", memory=memory).holds
    added = _found(what="memory added", memory=memory)
    assert (added.value, added.holds) == (51.0, False)
