"""Reads under way that several callers wait for."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Flights(Generic[K, T]):
    """One at a time for each key. Each is a task of its own: whoever gives up waiting ends it for nobody else."""

    def __init__(self) -> None:
        self._under_way: dict[K, asyncio.Task[T]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._under_way

    async def join(self, key: K, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = self._under_way.get(key)
        if task is None:
            # In nobody's context: what is logged on the way belongs to no one caller.
            task = asyncio.create_task(start(), context=Context())
            self._under_way[key] = task
            task.add_done_callback(lambda ended: self._land(key, ended))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _land(self, key: K, task: asyncio.Task[T]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            # Looked at, or it would be reported as missed where everybody has left.
            task.exception()
