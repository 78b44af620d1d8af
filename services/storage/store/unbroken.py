"""Work that goes on to its end where whoever asked for it has given up."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

_log = structlog.get_logger()


class UnbrokenWork:
    """For what belongs together though no transaction holds it: a change, and what follows from its commit."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """A caller that is cancelled leaves it under way."""
        task = self._start(work)
        try:
            return await asyncio.shield(task)
        finally:
            if not task.done():
                task.add_done_callback(_tell_failure)

    async def begin(self, work: Coroutine[Any, Any, None], *, wait_s: float) -> None:
        """Waits for it no longer than that, and then leaves it under way."""
        task = self._start(work)
        task.add_done_callback(_tell_failure)
        await asyncio.wait([task], timeout=wait_s)

    async def close(self) -> None:
        """Once all of it has ended."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task


def _tell_failure(task: asyncio.Task[Any]) -> None:
    """Of what nobody waits for any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("unbroken_work_failed", cause=type(error).__name__)
