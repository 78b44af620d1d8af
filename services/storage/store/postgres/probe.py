"""Whether the server answers at all, which a pool whose connections are all taken cannot tell."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Probe(Generic[T]):
    """Asks one question at a time; whoever comes while it is under way shares its answer.

    A caller that gives up leaves the question under way for the others.
    """

    def __init__(self, question: Callable[[], Coroutine[Any, Any, T]]):
        self._question = question
        self._asking: asyncio.Task[T] | None = None

    async def ask(self) -> T:
        """Raises what the question raises."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._question(), name="ask the database whether it answers")
            # Where every caller has given up, nobody else fetches the failure.
            self._asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
