"""Look-ups of which many may be asked for at once."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

AT_ONCE = 4


class Lookups(Generic[K, T]):
    """A few at once for each key; whoever comes meanwhile shares the next one.

    So each gets what was looked up after it had come, and a crowd before one key costs a few look-ups.
    """

    def __init__(self) -> None:
        self._lines: dict[K, _Line[T]] = {}

    async def ask(self, key: K, look: Callable[[], Awaitable[T]]) -> T:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        if line.next is None and line.under_way < AT_ONCE:
            return await self._look(key, line, look)
        if line.next is None:
            line.next = asyncio.create_task(self._look_next(key, line, look), context=Context())
            line.next.add_done_callback(_look_at)
        return await asyncio.shield(line.next)

    async def close(self) -> None:
        tasks = [line.next for line in self._lines.values() if line.next is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _look_next(self, key: K, line: "_Line[T]", look: Callable[[], Awaitable[T]]) -> T:
        await line.freed.wait()
        # From here on it has begun: who comes now is for the one after it.
        line.next = None
        return await self._look(key, line, look)

    async def _look(self, key: K, line: "_Line[T]", look: Callable[[], Awaitable[T]]) -> T:
        line.under_way += 1
        if line.under_way == AT_ONCE:
            line.freed.clear()
        try:
            return await look()
        finally:
            line.under_way -= 1
            line.freed.set()
            if not line.under_way and line.next is None:
                del self._lines[key]


class _Line(Generic[T]):
    __slots__ = ("freed", "next", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self.next: asyncio.Task[T] | None = None
        self.freed = asyncio.Event()


def _look_at(task: "asyncio.Task[T]") -> None:
    """Or its failure would be reported as missed where everybody has left."""
    if not task.cancelled():
        task.exception()
