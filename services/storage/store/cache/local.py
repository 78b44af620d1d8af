"""The layer within the process: what was used last, within a number of bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    @property
    def memory_bytes(self) -> int:
        """What the value takes up, its overhead included."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class LocalCache(Generic[K, V]):
    """Keeps what was used last. A value larger than the whole is not kept."""

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._values: OrderedDict[K, V] = OrderedDict()
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
        self.memory_bytes += value.memory_bytes
        while self.memory_bytes > self._max_bytes:
            _, oldest = self._values.popitem(last=False)
            self.memory_bytes -= oldest.memory_bytes

    def drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self.memory_bytes -= value.memory_bytes

    def keys(self) -> tuple[K, ...]:
        return tuple(self._values)
