"""What a run is asked to measure, and how thoroughly."""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare import Effort
from benchmarks.results import HISTORY, LISTS, PROCESSES, SPREAD
from benchmarks.subjects.base import APPEND, NEWEST, WHOLE
from benchmarks.subjects.registry import OURS, REGISTRY

MEMORY = "memory"
OPERATIONS = (NEWEST, WHOLE, APPEND)
"""In the order that they are measured: sessions grow by appends alone."""
PARTS = (*OPERATIONS, SPREAD, HISTORY, LISTS, PROCESSES, MEMORY)


@dataclass(frozen=True, kw_only=True)
class Options:
    only: Sequence[str]
    subjects: Sequence[str]
    sizes: Sequence[int]
    callers: Sequence[int]
    effort: Effort
    memory_sessions: int
    listed_sessions: int
    folder: Path
    json: Path | None

    @property
    def operations(self) -> list[str]:
        return [operation for operation in OPERATIONS if operation in self.only]


def read_options(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="How fast this storage is, beside its own limits and beside others, measured in one run on servers "
        "of its own: about 15 minutes on two cores.",
    )
    parser.add_argument("--only", type=_names(PARTS), metavar="PART,…", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--subjects", type=_names(tuple(REGISTRY)), metavar="NAME,…", help=f"of {', '.join(REGISTRY)}")
    parser.add_argument("--sizes", type=_numbers, metavar="N,…", help="messages in a session (10,100,1000,10000)")
    parser.add_argument("--concurrency", type=_numbers, metavar="N,…", help="callers at once (1,16,64)")
    parser.add_argument("--seconds", type=float, help="for each figure (1.5)")
    parser.add_argument("--memory-sessions", type=int, metavar="N", help="sessions of 100 to read through (500)")
    parser.add_argument("--quick", action="store_true", help="about 2 minutes; what else is given still counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, for machines")
    home = Path(os.environ.get("ASKBACK_HOME") or ".askback")
    parser.add_argument("--folder", type=Path, default=home / "bench", help="for data and the peers' packages")
    given = parser.parse_args(arguments)
    if given.json is not None and not given.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {given.json.parent}")
    quick = given.quick
    return Options(
        only=given.only or PARTS,
        # Whatever else is measured, it is measured beside ours.
        subjects=tuple(dict.fromkeys((OURS, *(given.subjects or REGISTRY)))),
        sizes=given.sizes or ((100, 1_000) if quick else (10, 100, 1_000, 10_000)),
        callers=given.concurrency or ((1, 64) if quick else (1, 16, 64)),
        effort=Effort(seconds=given.seconds or (0.4 if quick else 1.5), repeats=3 if quick else 6),
        memory_sessions=given.memory_sessions or (100 if quick else 500),
        listed_sessions=2_000 if quick else 10_000,
        folder=given.folder.expanduser().absolute(),
        json=given.json,
    )


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if not all(number > 0 for number in numbers):
        raise ValueError(text)
    return numbers


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return names

    return read
