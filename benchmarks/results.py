"""What a run found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

GRID, SPREAD, HISTORY, LISTS, PROCESSES = "grid", "spread", "history", "lists", "processes"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One subject doing one thing at one number of callers, over all repetitions."""

    part: str
    subject: str
    operation: str
    messages: int
    """In each session as it was filled."""
    callers: int
    sessions: int = 0
    """That the callers took turns on."""
    variant: str = ""
    """What sets it apart from its neighbour, where that is neither of the above."""
    calls: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    per_second: float | None = None
    client_cpu_ms: float | None = None
    """Of the calling process, for one call; in process that is the subject's own too."""
    server_cpu_ms: float | None = None
    """Of the subject's server, for one call; None where it has none."""
    busy: float | None = None
    """The share of the machine's cores that was at work, whoever's."""
    failures: int = 0
    failure: str = ""
    skipped: str = ""
    """Why there are no figures."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Resident memory of one storage process, in MiB."""

    at_rest: float
    after_reading: float
    sessions: int
    """That were read through in between, each with `messages`."""
    messages: int

    @property
    def added(self) -> float:
        return self.after_reading - self.at_rest


@dataclass
class Results:
    machine: Mapping[str, Any]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """The same for every subject."""
    versions: dict[str, str] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    memory: Memory | None = None
    notes: list[str] = field(default_factory=list)

    def find(self, part: str, **wanted: object) -> Iterator[Cell]:
        """The part's cells of which all of `wanted` is true, figures or not."""
        for cell in self.cells:
            if cell.part == part and all(getattr(cell, name) == value for name, value in wanted.items()):
                yield cell

    def figure(self, name: str, part: str, **wanted: object) -> float | None:
        """A figure of the one cell; None where it was not measured."""
        cell = next(self.find(part, **wanted), None)
        value: float | None = None if cell is None else getattr(cell, name)
        return value

    def measured(self, part: str, name: str, **wanted: object) -> Sequence[int]:
        """The values of a field that the part has cells for, in order."""
        return sorted({getattr(cell, name) for cell in self.find(part, **wanted)})
