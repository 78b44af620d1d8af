"""The results for people, as tables; and for machines, as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.ratios import Ratio, ratios
from benchmarks.results import GRID, HISTORY, LISTS, PROCESSES, SPREAD, Cell, Results
from benchmarks.subjects.base import APPEND, LIST, NEWEST, WHOLE
from benchmarks.subjects.registry import REGISTRY

_TITLES = {
    APPEND: "Append a turn: two messages of 400 bytes, the answer with a trace of 6 KiB",
    NEWEST: "Load the newest 100 messages with their traces",
    WHOLE: "Load all messages with their traces",
    LIST: "List the first 100 sessions of a user",
}
_FOOTNOTES = (
    "N: of N callers at once. p50 and p95 in ms; /s is calls a second of all callers together; n is how many were "
    "measured. The JSON has the CPU time of a call as well, at the caller and at the server.",
    "Callers, servers and PostgreSQL share the cores: on few of them a throughput is what is left of them.",
    "All subjects have as many connections to the same PostgreSQL, with fsync on, and a process each; what is called "
    "in process needs no server and no wire.",
)
_VERDICTS = {True: Text("holds", "green"), False: Text("fails", "bold red"), None: Text("open", "yellow")}


def as_json(results: Results) -> str:
    found = {
        "machine": dict(results.machine),
        "conditions": dict(results.conditions),
        "versions": results.versions,
        "cells": [asdict(cell) for cell in results.cells],
        "memory": results.memory and {**asdict(results.memory), "added": results.memory.added},
        "ratios": [{**asdict(ratio), "holds": ratio.holds} for ratio in ratios(results)],
        "notes": results.notes,
    }
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def show(results: Results, console: Console) -> None:
    console.print(_about(results))
    for operation in (APPEND, NEWEST, WHOLE):
        for messages in results.measured(GRID, "messages", operation=operation):
            cells = list(results.find(GRID, operation=operation, messages=messages))
            title = f"{_TITLES[operation]} · sessions of {messages:,} ({cells[0].sessions} of them)"
            console.print(title, style="bold", highlight=False)
            console.print(_side_by_side(cells))
            _explain(cells, console)
    ours = [cell for part in (SPREAD, HISTORY, LISTS, PROCESSES) for cell in results.find(part)]
    if ours:
        console.print("Ours beside itself", style="bold")
        console.print(_one_below_the_other(ours))
        _explain(ours, console)
    console.print("What must hold", style="bold")
    console.print(_bounds(ratios(results)))
    for line in (*_FOOTNOTES, *results.notes):
        console.print(line, style="dim", highlight=False)


def _explain(cells: Sequence[Cell], console: Console) -> None:
    """Why there are no figures where there are none, and what failed where something did."""
    for cell in cells:
        if why := cell.skipped or cell.failure:
            line = f"{REGISTRY[cell.subject].title}, {cell.callers} callers: {why}"
            console.print(line, style="dim", highlight=False, markup=False)


def _about(results: Results) -> Table:
    table = Table.grid(padding=(0, 2))
    machine = results.machine
    table.add_row("machine", f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB")
    table.add_row("system", f"{machine['system']}, load {machine['load_before']} before the run")
    table.add_row("commit", f"{machine['commit']}, at {machine['time']}")
    table.add_row("conditions", ", ".join(f"{name} {value}" for name, value in results.conditions.items()))
    table.add_row("versions", ", ".join(f"{name} {version}" for name, version in results.versions.items()))
    return table


def _side_by_side(cells: Sequence[Cell]) -> Table:
    """A row for each subject, and a group of columns for each number of callers."""
    callers = sorted({cell.callers for cell in cells})
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for number in callers:
        for column in (f"{number}: p50", "p95", "/s", "n"):
            table.add_column(column, justify="right", no_wrap=True)
    for subject in dict.fromkeys(cell.subject for cell in cells):
        row = [REGISTRY[subject].title]
        for number in callers:
            found = next((cell for cell in cells if cell.subject == subject and cell.callers == number), None)
            row += _figures(found)
        table.add_row(*row)
    return table


def _one_below_the_other(cells: Sequence[Cell]) -> Table:
    """A row for each cell."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "sessions", "callers", "p50", "p95", "/s", "n", "cores busy"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for cell in cells:
        what = " · ".join(filter(None, (cell.part, cell.operation, cell.variant)))
        sessions = f"{cell.sessions:,} × {cell.messages:,}"
        busy = "" if cell.busy is None else f"{cell.busy:.0%}"
        table.add_row(what, sessions, str(cell.callers), *_figures(cell), busy)
    return table


def _figures(cell: Cell | None) -> list[str]:
    if cell is None or cell.skipped:
        return ["–"] * 4
    failed = f" ({cell.failures} failed)" if cell.failures else ""
    return [
        _number(cell.p50_ms),
        _number(cell.p95_ms),
        _number(cell.per_second),
        f"{cell.calls}{failed}",
    ]


def _bounds(found: Sequence[Ratio]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("")
    for ratio in found:
        measured = "not measured" if ratio.value is None else f"{_number(ratio.value)} {ratio.unit}"
        bound = f"{'≥' if ratio.at_least else '≤'} {ratio.limit:g} {ratio.unit}"
        table.add_row(ratio.what, measured, bound, _VERDICTS[ratio.holds], ratio.note)
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
