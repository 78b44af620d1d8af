"""The layer within the process: what was used last, within a number of bytes, and for so long."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextvars import Context
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    @property
    def memory_bytes(self) -> int:
        """What the value takes up, its overhead included."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class LocalCache(Generic[K, V]):
    """Keeps what was used last. A value larger than the whole is not kept.

    And none for longer than `kept_s`, in use or not: its session may have been deleted where nobody tells.
    """

    def __init__(self, max_bytes: int, *, kept_s: float):
        self._max_bytes = max_bytes
        self._kept_s = kept_s
        self._values: OrderedDict[K, V] = OrderedDict()
        # The oldest first, whichever was used last.
        self._put_times: dict[K, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.memory_bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self.drop(key)
        if value.memory_bytes > self._max_bytes:
            return
        self._values[key] = value
        self._put_times[key] = asyncio.get_running_loop().time()
        self.memory_bytes += value.memory_bytes
        while self.memory_bytes > self._max_bytes:
            self.drop(next(iter(self._values)))
        if self._timer is None:
            self._await_age()

    def drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            del self._put_times[key]
            self.memory_bytes -= value.memory_bytes

    def close(self) -> None:
        """Keeps nothing any more."""
        for key in self.keys():
            self.drop(key)
        self._await_age()

    def keys(self) -> tuple[K, ...]:
        return tuple(self._values)

    def _await_age(self) -> None:
        """Nothing but time need pass for a value to go: a process that nobody asks has them, too."""
        if self._timer is not None:
            self._timer.cancel()
        oldest = next(iter(self._put_times.values()), None)
        if oldest is None:
            self._timer = None
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(oldest + self._kept_s, self._drop_aged, context=Context())

    def _drop_aged(self) -> None:
        until = asyncio.get_running_loop().time() - self._kept_s
        while (oldest := next(iter(self._put_times), None)) is not None and self._put_times[oldest] <= until:
            self.drop(oldest)
        self._await_age()
