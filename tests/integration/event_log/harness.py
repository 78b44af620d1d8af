"""Events to log, and all of a log."""

import secrets
from collections.abc import Sequence
from datetime import timedelta

from services.storage.models import RunEvent
from services.storage.store.events import EventSlice, RunEventLog

TTL = timedelta(minutes=10)


def unique(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(6)}"


def event(sequence: int, reply_text: str = "", *, payload: bytes | None = None, last: bool = False) -> RunEvent:
    return RunEvent(
        sequence=sequence,
        payload=b"event %d" % sequence if payload is None else payload,
        last=last,
        reply_text=reply_text,
    )


def pieces(texts: Sequence[str], *, start: int = 1) -> list[RunEvent]:
    """An event for each piece of a reply."""
    return [event(sequence, text) for sequence, text in enumerate(texts, start=start)]


async def read_all(log: RunEventLog, user: str, run: str, *, after_sequence: int = 0) -> EventSlice:
    return await log.read(user, run, after_sequence=after_sequence, limit=20_000)


async def sequences(log: RunEventLog, user: str, run: str) -> list[int]:
    return [event.sequence for event in (await read_all(log, user, run)).events]
