"""What people and machines are told of a run."""

import io
import json
from typing import Any

from rich.console import Console

from benchmarks.report import as_json, show
from benchmarks.results import GRID, Cell, Memory, Results
from benchmarks.subjects.base import APPEND
from benchmarks.subjects.registry import BARE, OURS, REGISTRY

MACHINE = {
    "time": "2024-01-31T00:00:00+00:00",
    "cores": 2,
    "processor": "a processor",
    "memory_gib": 4.0,
    "system": "a system",
    "load_before": 0.0,
    "commit": "0123abcd",
}


def _cell(subject: str, **fields: Any) -> Cell:
    return Cell(part=GRID, subject=subject, operation=APPEND, messages=100, callers=1, sessions=64, **fields)


def _results(*cells: Cell, memory: Memory | None = None) -> Results:
    return Results(
        machine=MACHINE, conditions={"fsync": "on"}, versions={"PostgreSQL": "18"}, cells=list(cells), memory=memory
    )


def _shown(results: Results) -> str:
    console = Console(file=io.StringIO(), width=160)
    show(results, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_machine_and_every_version_are_named_to_both() -> None:
    results = _results()
    told = json.loads(as_json(results))
    assert told["machine"] == MACHINE
    assert told["versions"] == {"PostgreSQL": "18"}
    shown = _shown(results)
    assert "2 cores" in shown and "0123abcd" in shown and "PostgreSQL 18" in shown


def test_a_subject_stands_beside_the_others_with_its_figures() -> None:
    ours = _cell(OURS, calls=300, p50_ms=2.5, p95_ms=3.5, per_second=390.0)
    bare = _cell(BARE, calls=400, p50_ms=2.0, p95_ms=3.0, per_second=480.0)
    lines = _shown(_results(ours, bare)).splitlines()
    (found,) = [line for line in lines if line.split("  ")[0].strip() == REGISTRY[OURS].title]
    assert found.split()[-4:] == ["2.50", "3.50", "390", "300"]


def test_every_bound_is_told_with_whether_it_holds() -> None:
    cells = (_cell(OURS, calls=1, p50_ms=2.0), _cell(BARE, calls=1, p50_ms=2.0))
    told = json.loads(as_json(_results(*cells, memory=Memory(at_rest=130, after_reading=140, sessions=1, messages=2))))
    verdicts = {ratio["what"]: ratio["holds"] for ratio in told["ratios"]}
    assert verdicts["append, p50 of one caller, beside the bare handler"] is True
    assert verdicts["memory of a storage process at rest"] is False
    assert verdicts["append, throughput of 64 callers, beside the bare handler"] is None
    assert told["memory"]["added"] == 10


def test_why_there_are_no_figures_is_told() -> None:
    results = _results(_cell(OURS, skipped="one call takes 9 s"))
    assert "one call takes 9 s" in _shown(results)
    assert json.loads(as_json(results))["cells"][0]["skipped"] == "one call takes 9 s"


def test_failed_calls_are_told_beside_those_that_were_measured() -> None:
    shown = _shown(_results(_cell(OURS, calls=7, p50_ms=1.0, failures=3, failure="Overloaded: busy")))
    assert "7 (3 failed)" in shown
    assert "Overloaded: busy" in shown
