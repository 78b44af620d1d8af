"""Times one operation with a number of callers at once. The standard library alone: every subject's process uses it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

Operate = Callable[[int, int], Awaitable[None]]
"""Given a session's number and a number for the call; raises where the answer is not the one expected."""


class WrongAnswer(Exception):
    """The subject answered something else than what was stored."""


def expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise WrongAnswer(f"{what}: {found!r} instead of {wanted!r}")


@dataclass
class Sample:
    """What came of one stretch of calls."""

    latencies_ms: list[float] = field(default_factory=list)
    """Of the calls that succeeded."""
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    """Of the process that called."""
    failures: int = 0
    failure: str = ""
    """The first one, for people."""

    @property
    def calls(self) -> int:
        return len(self.latencies_ms)

    def add(self, other: "Sample") -> None:
        self.latencies_ms += other.latencies_ms
        self.elapsed_s += other.elapsed_s
        self.cpu_s += other.cpu_s
        self.failures += other.failures
        self.failure = self.failure or other.failure


async def measure(
    operate: Operate, *, callers: int, sessions: int, seconds: float, most: int, first: int = 0
) -> Sample:
    """Each caller calls again once it is answered, until the time is over or `most` calls were made.

    Every caller makes at least one call. No two are in one session at once where there are sessions enough.
    """
    sample = Sample()
    begun = 0
    cpu, start = time.process_time(), time.perf_counter()
    until = start + seconds

    async def call_on(caller: int) -> None:
        nonlocal begun
        number = first
        while number == first or (begun < most and time.perf_counter() < until):
            begun += 1
            begin = time.perf_counter()
            try:
                await operate((caller + number * callers) % sessions, number * callers + caller)
            except Exception as error:
                sample.failures += 1
                sample.failure = sample.failure or told(error)
            else:
                sample.latencies_ms.append((time.perf_counter() - begin) * 1000)
            number += 1

    await asyncio.gather(*(call_on(caller) for caller in range(callers)))
    sample.elapsed_s, sample.cpu_s = time.perf_counter() - start, time.process_time() - cpu
    return sample


def told(error: BaseException) -> str:
    """One line, for people."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    # A gRPC call's own text has several lines of what its details say.
    details = getattr(error, "details", None)
    text = str(details() if callable(details) else error)
    return " ".join(f"{type(error).__name__}: {text}".split())[:300]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all are at or below; nan of none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
