"""The history of one seed: what was asked, when, how it ended, and what was seen."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from tests.history.model import Effect


class Entry(NamedTuple):
    """One message, as it was read."""

    position: int
    message_id: str
    content: str
    create_time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A session as one reply showed it, of a moment between `began` and `ended`. None: not told.

    `entries` are the messages after position `begin` up to position `end`; None: up to the session's last.
    """

    user: str
    session: str
    began: float
    ended: float
    by: str
    revision: int
    uid: str | None = None
    count: int | None = None
    entries: tuple[Entry, ...] | None = None
    begin: int = 0
    end: int | None = None
    metadata: Mapping[str, str] | None = None
    title: str | None = None
    active_run: str | None = None
    pending_task: str | None = None
    note: str | None = None
    note_through: int = 0

    @property
    def contents(self) -> tuple[str, ...]:
        return tuple(entry.content for entry in self.entries or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A reply that said that there is no such session."""

    user: str
    session: str
    began: float
    ended: float
    by: str


class Outcome(Enum):
    OK = auto()
    REFUSED = auto()
    """With a reason; nothing was written, as far as the last try knew."""
    GONE = auto()
    """It took effect in a session that was deleted since."""
    UNKNOWN = auto()


@dataclass(slots=True, kw_only=True)
class Write:
    """One request that changes something, with all its tries under one request_id."""

    key: str
    user: str
    session: str
    method: str
    effect: Effect | None
    """None: it moves no revision, or deletes the session."""
    expected: int | None = None
    began: float = 0.0
    ended: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN
    reason: str = ""
    told: Mapping[str, str] = field(default_factory=dict)
    """What the refusal told beside its reason."""
    unsure: bool = False
    """Some try ended without an answer."""
    uid: str = ""
    revision: int = 0
    """The session's as the first answer showed it; the write's own or a later one."""
    position: int = 0
    """Of its first message, as the answer told; 0: none."""
    moves: bool = True
    """The answer says that it changed the session."""
    answers: list[tuple[object, ...]] = field(default_factory=list)
    """Of every answer under this request_id, what has to be the same."""
    claimed: str = ""
    """The question that a BeginRun says it claimed."""
    lease_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A run or a question, as a reply showed it."""

    thing: str
    state: str
    began: float
    ended: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: str
    began: float
    ended: float
    in_flight: int
    """Calls that were under way as it began."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A reply that no call may get, whatever fails."""

    by: str
    reason: str


@dataclass(slots=True)
class History:
    """All of it; filled by clients and faults, read by the checker."""

    writes: list[Write] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    runs: list[Life] = field(default_factory=list)
    tasks: list[Life] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """By session, the notes that clients have tried to store, and the positions that they go through."""
    begun_as: dict[str, str] = field(default_factory=dict)
    """By run_id, the key of the BeginRun that it is."""
    asked_as: dict[str, str] = field(default_factory=dict)
    """By task_id, the question."""
    said: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By the key of a BeginRun, the pieces of the reply that its holder has tried to log."""
    renewals: dict[str, list[float]] = field(default_factory=dict)
    """By the key of a BeginRun, when RenewRuns began that were answered."""
    calls: int = 0
    lost_replies: int = 0
    in_flight: int = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call as under way."""
        self.calls += 1
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    @contextmanager
    def fault(self, kind: str) -> Iterator[None]:
        began, in_flight = now(), self.in_flight
        try:
            yield
        finally:
            self.faults.append(Fault(kind=kind, began=began, ended=now(), in_flight=in_flight))

    def lines(self) -> Iterator[str]:
        """Everything in order of time, a line each, for whoever looks into a violation."""
        told: list[tuple[float, float, str]] = []
        for write in self.writes:
            told.append((write.began, write.ended, f"{write.user}/{write.session} {write}"))
        for sight in self.sights:
            shown = f"{sight.uid} revision {sight.revision}, {sight.count} messages, run {sight.active_run!r}"
            waits = f"question {sight.pending_task!r}, note through {sight.note_through}, {sight.contents[-3:]}"
            told.append((sight.began, sight.ended, f"{sight.user}/{sight.session} {sight.by} saw {shown}, {waits}"))
        for absence in self.absences:
            told.append((absence.began, absence.ended, f"{absence.user}/{absence.session} {absence.by} saw none"))
        for life in (*self.runs, *self.tasks):
            told.append((life.began, life.ended, f"{life.by} saw {life.thing} {life.state}"))
        for fault in self.faults:
            told.append((fault.began, fault.ended, f"FAULT {fault.kind}, {fault.in_flight} calls under way"))
        for began, ended, text in sorted(told):
            yield f"{began:.4f} {ended:.4f} {text}"


def now() -> float:
    """The one clock of the history."""
    return time.monotonic()
