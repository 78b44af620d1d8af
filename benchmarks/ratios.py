"""What must hold, as ratios of figures from one run, so that the machine cancels out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.results import GRID, HISTORY, LISTS, PROCESSES, SPREAD, Results
from benchmarks.subjects.base import APPEND, LIST, NEWEST, WHOLE
from benchmarks.subjects.registry import BARE, LANGCHAIN, OURS, REGISTRY, REWRITE, UNCACHED

REFERENCE_MESSAGES = 100
"""Where a bound names no size: that of the sessions nearest to it."""
MANY = 64
BUSY = 0.9
"""From this share of its cores on, a machine has nothing to give to one more process."""
AT_REST_MIB, ADDED_MIB = 120, 50

ONE_USER, MANY_USERS = "one user", "a user each"
ONE_PROCESS, TWO_PROCESSES = "one process", "two processes"


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One bound, and what the run has to say about it."""

    what: str
    value: float | None
    """None where it was not measured."""
    limit: float
    at_least: bool = False
    """The limit is a floor; otherwise it is a ceiling."""
    unit: str = "×"
    note: str = ""
    excused: bool = False
    """The machine could not have shown it; then it neither holds nor fails."""

    @property
    def holds(self) -> bool | None:
        """None where nobody can tell."""
        if self.value is None:
            return None
        if self.value >= self.limit if self.at_least else self.value <= self.limit:
            return True
        return None if self.excused else False


def ratios(results: Results) -> list[Ratio]:
    return [
        *_appends(results),
        *_append_beside_peers(results),
        *_newest(results),
        *_whole_beside_peers(results),
        *_spread(results),
        *_processes(results),
        *_lists(results),
        *_memory(results),
    ]


def _quotient(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _nearest(sizes: Sequence[int], wanted: int) -> int | None:
    return min(sizes, key=lambda size: abs(math.log(size / wanted)), default=None)


def _appends(results: Results) -> list[Ratio]:
    size = _nearest(results.measured(GRID, "messages", operation=APPEND, subject=OURS), REFERENCE_MESSAGES)
    at = f"at {size:,} messages" if size else ""

    def beside_bare(name: str, callers: int) -> float | None:
        ours, bare = (
            results.figure(name, GRID, operation=APPEND, subject=subject, messages=size, callers=callers)
            for subject in (OURS, BARE)
        )
        return _quotient(ours, bare)

    sizes = results.measured(HISTORY, "messages")
    short, long = (
        results.figure("p50_ms", HISTORY, messages=messages) if sizes else None
        for messages in (min(sizes, default=0), max(sizes, default=0))
    )
    return [
        Ratio(
            what="append, p50 of one caller, beside the bare handler",
            value=beside_bare("p50_ms", 1),
            limit=1.35,
            note=at,
        ),
        Ratio(
            what=f"append, throughput of {MANY} callers, beside the bare handler",
            value=beside_bare("per_second", MANY),
            limit=0.75,
            at_least=True,
            note=at,
        ),
        Ratio(
            what="append, p50 to a long session beside a short one",
            value=_quotient(long, short),
            limit=1.1,
            note=f"{max(sizes):,} and {min(sizes):,} messages" if sizes else "",
        ),
    ]


def _append_beside_peers(results: Results) -> list[Ratio]:
    found = []
    for name in (*_peers(), REWRITE):
        at_worst: tuple[float, int] | None = None
        for size in results.measured(GRID, "messages", operation=APPEND, subject=name):
            ours, theirs = (
                results.figure("p50_ms", GRID, operation=APPEND, subject=subject, messages=size, callers=1)
                for subject in (OURS, name)
            )
            quotient = _quotient(ours, theirs)
            if quotient is not None and (at_worst is None or quotient > at_worst[0]):
                at_worst = (quotient, size)
        found.append(
            Ratio(
                what=f"append, p50 of one caller, beside {REGISTRY[name].title}",
                value=at_worst[0] if at_worst else None,
                limit=1.8 if name == LANGCHAIN else 1.0,
                note=f"at worst, at {at_worst[1]:,} messages" if at_worst else "",
            )
        )
    return found


def _newest(results: Results) -> list[Ratio]:
    sizes = [
        size
        for size in results.measured(GRID, "messages", operation=NEWEST, subject=OURS)
        if size >= REFERENCE_MESSAGES
    ]
    size = _nearest(sizes, REFERENCE_MESSAGES)
    warm, bare, uncached = (
        results.figure("p50_ms", GRID, operation=NEWEST, subject=subject, messages=size, callers=1)
        for subject in (OURS, BARE, UNCACHED)
    )
    at = f"of {size:,} messages" if size else ""
    return [
        Ratio(
            what="newest 100 with traces, warm, p50 beside the bare handler",
            value=_quotient(warm, bare),
            limit=1.3,
            note=at,
        ),
        Ratio(
            what="newest 100 with traces, warm, p50 beside ours without cache",
            value=_quotient(warm, uncached),
            limit=0.6,
            note=at,
        ),
    ]


def _whole_beside_peers(results: Results) -> list[Ratio]:
    found = []
    for name in _peers():
        ours, theirs = (
            results.figure("p50_ms", GRID, operation=WHOLE, subject=subject, messages=1_000, callers=1)
            for subject in (OURS, name)
        )
        found.append(
            Ratio(
                what=f"all of 1,000 messages, p50 of {REGISTRY[name].title} beside ours",
                value=_quotient(theirs, ours),
                limit=2.0,
                at_least=True,
            )
        )
    return found


def _spread(results: Results) -> list[Ratio]:
    found = []
    for operation in (APPEND, NEWEST):
        callers = max(results.measured(SPREAD, "callers"), default=MANY)
        one, many = (
            results.figure("per_second", SPREAD, operation=operation, variant=variant, callers=callers)
            for variant in (ONE_USER, MANY_USERS)
        )
        found.append(
            Ratio(
                what=f"{operation}, throughput of {callers} callers on one user's sessions beside as many users'",
                value=_quotient(one, many),
                limit=0.7,
                at_least=True,
            )
        )
    return found


def _processes(results: Results) -> list[Ratio]:
    found = []
    for operation in (APPEND, NEWEST):
        one, two = (
            next(results.find(PROCESSES, operation=operation, variant=variant), None)
            for variant in (ONE_PROCESS, TWO_PROCESSES)
        )
        busy = one.busy if one else None
        full = busy is not None and busy > BUSY
        note = "" if busy is None else f"cores {busy:.0%} busy with one"
        found.append(
            Ratio(
                what=f"{operation}, throughput of two storage processes beside one",
                value=_quotient(two.per_second if two else None, one.per_second if one else None),
                limit=1.5,
                at_least=True,
                note=f"{note}: no room for two" if full else note,
                excused=full,
            )
        )
    return found


def _lists(results: Results) -> list[Ratio]:
    sizes = results.measured(LISTS, "sessions")
    few, many = (
        results.figure("p50_ms", LISTS, operation=LIST, sessions=sessions) if len(sizes) > 1 else None
        for sessions in (min(sizes, default=0), max(sizes, default=0))
    )
    return [
        Ratio(
            what="first 100 sessions, p50 of a user with many beside one with few",
            value=_quotient(many, few),
            limit=1.3,
            note=f"{max(sizes):,} and {min(sizes):,} sessions" if sizes else "",
        )
    ]


def _memory(results: Results) -> list[Ratio]:
    memory = results.memory
    return [
        Ratio(
            what="memory of a storage process at rest",
            value=memory.at_rest if memory else None,
            limit=AT_REST_MIB,
            unit="MiB",
        ),
        Ratio(
            what="memory added by reading through sessions",
            value=memory.added if memory else None,
            limit=ADDED_MIB,
            unit="MiB",
            note=f"{memory.sessions:,} sessions of {memory.messages} messages" if memory else "",
        ),
    ]


def _peers() -> list[str]:
    return [name for name, entry in REGISTRY.items() if entry.is_peer]
