"""One write at a time to each session, within this process.

They would wait for the session's row all the same, but each on a connection of its own: a burst on one session
would leave none for the others, and the last of them would find the pool taken for longer than a call waits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.storage.errors import Contention, DatabaseUnavailable


@dataclass(slots=True, eq=False)
class _Line:
    front: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class SessionLines:
    """`wait_s` is how long a write stands in line; `answers` tells whether the database answers at all."""

    def __init__(self, *, wait_s: float, answers: Callable[[], Awaitable[bool]]):
        self._wait_s = wait_s
        self._answers = answers
        self._lines: dict[tuple[str, str], _Line] = {}

    @asynccontextmanager
    async def in_turn(self, user_id: str, session_id: str) -> AsyncIterator[None]:
        """In order of arrival. Raises Contention after `wait_s`, or DatabaseUnavailable where that is why."""
        name = (user_id, session_id)
        line = self._lines.setdefault(name, _Line())
        line.length += 1
        try:
            # A lock that is free may be promised to whoever was woken for it.
            if line.length > 1:
                await self._stand_in(line)
            else:
                await line.front.acquire()
            try:
                yield
            finally:
                line.front.release()
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[name]

    async def _stand_in(self, line: _Line) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await line.front.acquire()
        except TimeoutError:
            # Whoever has the front may wait for a server that is silent, rather than be at work.
            raise (Contention() if await self._answers() else DatabaseUnavailable()) from None
