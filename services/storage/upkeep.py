"""Lets a store look after itself, in the background of each replica."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from services.runtime.errors import ServiceError
from services.storage.store.base import Upkeep

# Between two batches of the same kind: callers come first.
_PAUSE_S = 0.02
# Runs hold up whoever waits for them; what is old can wait.
_OFTEN, _SELDOM = 0.2, 12.0
_JITTER = 0.25

_log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Chore:
    name: str
    do_batch: Callable[[], Awaitable[int]]
    every_s: float
    due: float
    done: int = 0
    """Since there was last nothing left to do."""


@asynccontextmanager
async def running_upkeep(upkeep: Upkeep, *, interval_s: float) -> AsyncIterator[None]:
    """Does all that the port names, until left; expired runs are looked for five times in an interval.

    What is old is looked for once in twelve, beside the rest: no run's end waits for a deletion. A chore that
    fails is tried again in its time, and harms no other.
    """

    def chore(name: str, do_batch: Callable[[], Awaitable[int]], *, often: float = 1.0) -> _Chore:
        every_s = often * interval_s
        # Replicas that were started at once do not look at once.
        return _Chore(name, do_batch, every_s=every_s, due=time.monotonic() + random.uniform(0, every_s))

    due = (
        chore("end_expired_runs", upkeep.end_expired_runs, often=_OFTEN),
        chore("drop_lost_places", upkeep.drop_lost_places),
        chore("expire_hitl_tasks", upkeep.expire_hitl_tasks),
    )
    old = (
        chore("delete_expired_sessions", upkeep.delete_expired_sessions, often=_SELDOM),
        chore("delete_old_runs", upkeep.delete_old_runs, often=_SELDOM),
        chore("forget_requests", upkeep.forget_requests, often=_SELDOM),
    )
    failures = _Failures()
    tasks = [
        asyncio.create_task(_keep_up(due, failures), name="upkeep of what is due"),
        asyncio.create_task(_keep_up(old, failures), name="upkeep of what is old"),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        # Awaited themselves, their cancellation could not be told from the caller's own.
        await asyncio.wait(tasks)


class _Failures:
    """Tells of each reason once, until it is over: a database that is away fails all chores, over and over."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def failed(self, chore: str, error: Exception) -> None:
        reason = error.reason if isinstance(error, ServiceError) else type(error).__name__
        told = reason in self._reasons.values()
        self._reasons[chore] = reason
        if told:
            return
        if isinstance(error, ServiceError):
            _log.warning("upkeep_failed", chore=chore, reason=reason)
        else:
            _log.error("upkeep_failed", chore=chore, reason=reason, exc_info=error)

    def succeeded(self, chore: str) -> None:
        if self._reasons.pop(chore, None) and not self._reasons:
            _log.info("upkeep_recovered")


async def _keep_up(chores: Sequence[_Chore], failures: _Failures) -> None:
    while True:
        # The one that has waited longest: a backlog of one kind holds up no other.
        chore = min(chores, key=lambda each: each.due)
        await asyncio.sleep(max(0.0, chore.due - time.monotonic()))
        try:
            count = await chore.do_batch()
        except Exception as error:
            count = 0
            failures.failed(chore.name, error)
        else:
            failures.succeeded(chore.name)
        chore.done += count
        if chore.done and not count:
            _log.info("upkeep_done", chore=chore.name, count=chore.done)
            chore.done = 0
        wait_s = _PAUSE_S if count else chore.every_s * random.uniform(1 - _JITTER, 1 + _JITTER)
        chore.due = time.monotonic() + wait_s
