"""Tells those who wait for a session, within this process, that a run of it has ended."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Bell:
    def __init__(self) -> None:
        self._listening: dict[tuple[str, str], set[asyncio.Event]] = {}

    @contextmanager
    def listening(self, user_id: str, session_id: str) -> Iterator[asyncio.Event]:
        """The event is set whenever the session's bell is rung; whoever listens clears it."""
        name = (user_id, session_id)
        rung = asyncio.Event()
        listening = self._listening.setdefault(name, set())
        listening.add(rung)
        try:
            yield rung
        finally:
            listening.discard(rung)
            if not listening:
                self._listening.pop(name, None)

    def ring(self, user_id: str, session_id: str) -> None:
        for rung in self._listening.get((user_id, session_id), ()):
            rung.set()
