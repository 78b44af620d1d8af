"""Measures subjects against each other: a little of each in turn, forth and back, so that drift hits all alike."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import psutil

from benchmarks.clients import Client, SubjectFailed
from benchmarks.material import SessionSet
from benchmarks.measure import Sample, percentile
from benchmarks.results import Cell
from benchmarks.subjects.base import APPEND

_WARM_S = 0.3
_FIRST_READS_WITHIN_S = 5.0
_WARM_CALLERS = 16
LONGEST_ROUND_S = 8.0
"""A cell is passed over where one call of each caller would take longer."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much time a cell is given."""

    seconds: float
    """In all its repetitions together."""
    repeats: int
    most_calls: int = 6_000


@dataclass(kw_only=True)
class Arm:
    """One side of a comparison."""

    part: str
    subject: str
    operation: str
    sessions: SessionSet
    clients: Sequence[Client]
    """Processes that share the callers."""
    variant: str = ""
    servers: Sequence[int] = ()
    """Their process ids."""
    call_s: float = field(default=0.0, init=False)
    """How long one call takes by itself, as warming up found."""
    failed: str = field(default="", init=False)

    async def warm_up(self, callers: int) -> None:
        """Connections, plans and caches; one caller alone first, to know what more would cost."""
        client = self.clients[0]
        try:
            # What has a memory of its own is to have seen every session.
            alone = await client.measure(
                self.operation,
                self.sessions,
                callers=1,
                seconds=_FIRST_READS_WITHIN_S if self.servers and self.operation != APPEND else _WARM_S,
                most=max(3, self.sessions.sessions),
            )
            if not alone.calls:
                raise SubjectFailed(alone.failure)
            self.call_s = min(alone.latencies_ms) / 1000
            many = min(callers, _WARM_CALLERS)
            if many > 1 and self.call_s * many < _FIRST_READS_WITHIN_S:
                for each in self.clients:
                    await each.measure(self.operation, self.sessions, callers=many, seconds=_WARM_S, most=10_000)
        except SubjectFailed as error:
            self.failed = str(error)

    async def measure(self, *, callers: int, seconds: float, most: int, first: int) -> Sample:
        """Throughput of several clients is that of all; CPU too."""
        share = max(1, callers // len(self.clients))
        samples = await asyncio.gather(
            *(
                client.measure(self.operation, self.sessions, callers=share, seconds=seconds, most=most, first=first)
                for client in self.clients
            )
        )
        whole = Sample()
        for sample in samples:
            whole.add(sample)
        whole.elapsed_s = max(sample.elapsed_s for sample in samples)
        return whole


@dataclass
class _Tally:
    sample: Sample = field(default_factory=Sample)
    server_cpu_s: float = 0.0
    busy_s: float = 0.0


async def compare(arms: Sequence[Arm], *, callers: Sequence[int], effort: Effort, tell: Tell) -> list[Cell]:
    """A cell for each arm at each number of callers."""
    for arm in arms:
        await arm.warm_up(max(callers))
    cells = []
    for number in callers:
        tallies = await _interleaved(arms, callers=number, effort=effort)
        cells += [_cell(arm, number, tally) for arm, tally in zip(arms, tallies, strict=True)]
        tell(f"  {arms[0].operation} {arms[0].sessions.name}: {number} callers")
    return cells


async def _interleaved(arms: Sequence[Arm], *, callers: int, effort: Effort) -> list[_Tally]:
    tallies = [_Tally() for _ in arms]
    for repeat in range(effort.repeats):
        order = list(zip(arms, tallies, strict=True))
        for arm, tally in order if repeat % 2 == 0 else reversed(order):
            if arm.failed or _too_long(arm, callers) or tally.sample.elapsed_s > effort.seconds:
                continue
            server, busy = _server_cpu_s(arm), _busy_s()
            try:
                sample = await arm.measure(
                    callers=callers,
                    seconds=effort.seconds / effort.repeats,
                    most=effort.most_calls // effort.repeats,
                    first=repeat * 101,
                )
            except SubjectFailed as error:
                arm.failed = str(error)
                continue
            tally.server_cpu_s += _server_cpu_s(arm) - server
            tally.busy_s += _busy_s() - busy
            tally.sample.add(sample)
    return tallies


def _too_long(arm: Arm, callers: int) -> bool:
    return arm.call_s * callers > LONGEST_ROUND_S and callers > 1


def _cell(arm: Arm, callers: int, tally: _Tally) -> Cell:
    sample = tally.sample
    cell = Cell(
        part=arm.part,
        subject=arm.subject,
        operation=arm.operation,
        messages=arm.sessions.messages,
        callers=callers,
        sessions=arm.sessions.sessions,
        variant=arm.variant,
        failures=sample.failures,
        failure=sample.failure,
    )
    if not sample.calls:
        too_long = f"one call takes {arm.call_s:.2g} s" if _too_long(arm, callers) else ""
        return replace(cell, skipped=arm.failed or sample.failure or too_long or "not measured")
    return replace(
        cell,
        calls=sample.calls,
        p50_ms=percentile(sample.latencies_ms, 0.5),
        p95_ms=percentile(sample.latencies_ms, 0.95),
        per_second=sample.calls / sample.elapsed_s,
        client_cpu_ms=sample.cpu_s / sample.calls * 1000,
        server_cpu_ms=tally.server_cpu_s / sample.calls * 1000 if arm.servers else None,
        busy=min(1.0, tally.busy_s / sample.elapsed_s / (os.cpu_count() or 1)),
    )


def _server_cpu_s(arm: Arm) -> float:
    used = 0.0
    for pid in arm.servers:
        # One that died is started again under another id; its calls have failed by then.
        with suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            used += times.user + times.system
    return used


def _busy_s() -> float:
    """Seconds of work of all cores, since some moment."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
