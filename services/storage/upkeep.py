"""Lets a store look after itself, in the background of each replica."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
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
    failure: str = ""
    """Why it failed when it was last tried."""


@asynccontextmanager
async def running_upkeep(upkeep: Upkeep, *, interval_s: float) -> AsyncIterator[None]:
    """Does all that the port names, until left; expired runs are looked for five times in an interval.

    What is old is looked for once in twelve. A chore that fails is tried again in its time, and harms no other.
    """
    chores = _chores(upkeep, interval_s=interval_s)
    task = asyncio.create_task(_keep_up(chores), name="upkeep")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _chores(upkeep: Upkeep, *, interval_s: float) -> Sequence[_Chore]:
    now = time.monotonic()

    def chore(name: str, do_batch: Callable[[], Awaitable[int]], *, often: float = 1.0) -> _Chore:
        every_s = often * interval_s
        # Replicas that were started at once do not look at once.
        return _Chore(name, do_batch, every_s=every_s, due=now + random.uniform(0, every_s))

    return (
        chore("end_expired_runs", upkeep.end_expired_runs, often=_OFTEN),
        chore("drop_lost_places", upkeep.drop_lost_places),
        chore("expire_hitl_tasks", upkeep.expire_hitl_tasks),
        chore("delete_expired_sessions", upkeep.delete_expired_sessions, often=_SELDOM),
        chore("delete_old_runs", upkeep.delete_old_runs, often=_SELDOM),
        chore("forget_requests", upkeep.forget_requests, often=_SELDOM),
    )


async def _keep_up(chores: Sequence[_Chore]) -> None:
    while True:
        # The one that has waited longest: a backlog of one kind holds up no other.
        chore = min(chores, key=lambda each: each.due)
        await asyncio.sleep(max(0.0, chore.due - time.monotonic()))
        try:
            count = await chore.do_batch()
        except Exception as error:
            count = 0
            _tell_failure(chore, error, chores)
        else:
            if chore.failure:
                chore.failure = ""
                if not any(each.failure for each in chores):
                    _log.info("upkeep_recovered")
        chore.done += count
        if chore.done and not count:
            _log.info("upkeep_done", chore=chore.name, count=chore.done)
            chore.done = 0
        wait_s = _PAUSE_S if count else chore.every_s * random.uniform(1 - _JITTER, 1 + _JITTER)
        chore.due = time.monotonic() + wait_s


def _tell_failure(chore: _Chore, error: Exception, chores: Sequence[_Chore]) -> None:
    """Once for each reason, until it succeeds again: a database that is away fails them all, over and over."""
    reason = error.reason if isinstance(error, ServiceError) else type(error).__name__
    told = any(each.failure == reason for each in chores)
    chore.failure = reason
    if told:
        return
    if isinstance(error, ServiceError):
        _log.warning("upkeep_failed", chore=chore.name, reason=reason)
    else:
        _log.error("upkeep_failed", chore=chore.name, reason=reason, exc_info=error)
