"""The log of what runs have told, over Redis: for those who watch a run, and for ending one whose holder died."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from redis.asyncio import Redis

from services.storage.errors import EventLogUnavailable
from services.storage.models import RunEvent
from services.storage.store import event_scripts
from services.storage.store.redis_connection import RedisConnection, RedisUnavailable

MAX_EVENTS = 10_000
"""Of a run; then the oldest go."""
MAX_BYTES = 8 * 1024 * 1024
"""Of a run's events; then the oldest go, and the newest stays however large it is."""
EVENT_OVERHEAD_BYTES = 64
"""What an event counts beside its payload and its piece of the reply."""
MAX_REPLY_BYTES = 1024 * 1024
"""Of a run's reply, in UTF-8; what comes later is not kept."""
LIVE_GRACE = timedelta(hours=1)
"""How much longer than an ended log one is kept that nothing more comes to, and that nobody ends."""
BUDGET_S = 0.25
FORGET_AT_ONCE = 200
FORGOTTEN_FOR = timedelta(seconds=10)
"""How long a forgotten log takes no events: longer than any append takes that was allowed before."""

_T = TypeVar("_T")


class EventLogEnded(Exception):
    """The log has its last event, or was ended without one, and takes no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedEvents:
    """What is no longer kept event by event: all of them through a sequence, and the reply up to there."""

    through_sequence: int
    reply_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSlice:
    """Some events of a run, in order and without a gap. `ended` where none will ever follow them.

    With `compacted`, the events begin after what it speaks of.
    """

    events: Sequence[RunEvent]
    compacted: CompactedEvents | None
    ended: bool


class RunEventLog(ABC):
    """The events of each run from its first on, without a gap.

    It keeps the newest MAX_EVENTS of a run, within MAX_BYTES, and the reply of all. It may lose a run at any
    time, whole or its reply alone; never does it give events with a gap, or a reply with a hole. A run that
    it has lost looks like one that never was.
    """

    @abstractmethod
    async def append(self, user_id: str, run_id: str, events: Sequence[RunEvent]) -> int:
        """Adds events, in ascending order of sequence, and returns the last sequence that the log has.

        All of them or none. One that is there already is passed over. Raises EventLogEnded, where one comes
        after the log's end; EventLogUnavailable, where it cannot be reached, and then it may hold them all,
        or where it lacks events that come before these: it takes these once it has those.
        """

    @abstractmethod
    async def read(self, user_id: str, run_id: str, *, after_sequence: int, limit: int) -> EventSlice:
        """At most `limit` events after a sequence, an `after_sequence` of 0 being the start.

        Raises EventLogUnavailable.
        """

    @abstractmethod
    async def reply_text(self, user_id: str, run_id: str) -> str:
        """The reply as far as it came, within MAX_REPLY_BYTES; "" where it is lost. Raises EventLogUnavailable."""

    @abstractmethod
    async def last_sequence(self, user_id: str, run_id: str) -> int:
        """0 where there is no event. Raises EventLogUnavailable."""

    @abstractmethod
    async def end(self, user_id: str, run_id: str) -> None:
        """Ends the log of a run that ended without its holder: it takes no more events. Raises nothing.

        Where it cannot be reached, the log ends by its time alone.
        """

    @abstractmethod
    async def forget(self, user_id: str, run_ids: Sequence[str]) -> None:
        """Removes all of these runs, as far as it can be reached; what is left goes in its time. Raises nothing.

        An append that was under way meanwhile finds the log ended, and brings nothing back.
        """

    @abstractmethod
    async def close(self) -> None:
        """Lets go of what the log itself has opened. Must be called once, after the last call has returned."""


class NoEventLog(RunEventLog):
    """For a system without Redis: it can never be reached to write, and knows nothing of any run."""

    async def append(self, user_id: str, run_id: str, events: Sequence[RunEvent]) -> int:
        raise EventLogUnavailable()

    async def read(self, user_id: str, run_id: str, *, after_sequence: int, limit: int) -> EventSlice:
        return EventSlice(events=(), compacted=None, ended=False)

    async def reply_text(self, user_id: str, run_id: str) -> str:
        return ""

    async def last_sequence(self, user_id: str, run_id: str) -> int:
        return 0

    async def end(self, user_id: str, run_id: str) -> None:
        """There is none to end."""

    async def forget(self, user_id: str, run_ids: Sequence[str]) -> None:
        """There is none to forget."""

    async def close(self) -> None:
        """Nothing was opened."""


class RedisEventLog(RunEventLog):
    """On Redis Streams, within `budget_s` a call. `ttl` is how long a log is kept after its end."""

    def __init__(self, connection: RedisConnection, *, ttl: timedelta, budget_s: float = BUDGET_S) -> None:
        self._connection = connection
        self._budget_s = budget_s
        self._ended_ms = _milliseconds(ttl)
        self._live_ms = _milliseconds(ttl + LIVE_GRACE)

    async def append(self, user_id: str, run_id: str, events: Sequence[RunEvent]) -> int:
        arguments: list[str | bytes | int] = [
            self._live_ms,
            self._ended_ms,
            MAX_EVENTS,
            MAX_BYTES,
            MAX_REPLY_BYTES,
            EVENT_OVERHEAD_BYTES,
        ]
        for event in events:
            arguments += (event.sequence, int(event.last), event.payload, event.reply_text)
        outcome, sequence = await self._run(
            lambda redis: event_scripts.append(redis, _keys(user_id, run_id), *arguments)
        )
        if outcome == event_scripts.ENDED:
            raise EventLogEnded()
        if outcome != event_scripts.APPENDED:
            raise EventLogUnavailable()
        return int(sequence)

    async def read(self, user_id: str, run_id: str, *, after_sequence: int, limit: int) -> EventSlice:
        ended, through, reply, events = await self._run(
            lambda redis: event_scripts.read(redis, _keys(user_id, run_id), after_sequence, limit, MAX_REPLY_BYTES)
        )
        return EventSlice(
            events=tuple(
                RunEvent(sequence=sequence, payload=payload, last=bool(last), reply_text=piece.decode())
                for sequence, payload, last, piece in events
            ),
            compacted=CompactedEvents(through_sequence=through, reply_text=reply.decode()) if through else None,
            ended=bool(ended),
        )

    async def reply_text(self, user_id: str, run_id: str) -> str:
        reply: bytes = await self._run(
            lambda redis: event_scripts.reply(redis, _keys(user_id, run_id), MAX_REPLY_BYTES)
        )
        return reply.decode()

    async def last_sequence(self, user_id: str, run_id: str) -> int:
        return int(await self._run(lambda redis: event_scripts.last_sequence(redis, _keys(user_id, run_id))))

    async def end(self, user_id: str, run_id: str) -> None:
        with suppress(EventLogUnavailable):
            await self._run(lambda redis: event_scripts.end(redis, _keys(user_id, run_id), self._ended_ms))

    async def forget(self, user_id: str, run_ids: Sequence[str]) -> None:
        for start in range(0, len(run_ids), FORGET_AT_ONCE):
            runs = [_keys(user_id, run_id) for run_id in run_ids[start : start + FORGET_AT_ONCE]]
            with suppress(EventLogUnavailable):
                await self._run(partial(_forget, runs))

    async def close(self) -> None:
        """The connection is its opener's to close."""

    async def _run(self, operation: Callable[[Redis], Awaitable[_T]]) -> _T:
        try:
            return await self._connection.run(operation, budget_s=self._budget_s)
        except RedisUnavailable as error:
            raise EventLogUnavailable() from error


def _keys(user_id: str, run_id: str) -> tuple[str, str]:
    """The run's two keys, on one slot of a cluster; no two pairs of ids share one, whatever they hold."""
    tag = f"{{{quote(user_id, safe='')}:{quote(run_id, safe='')}}}"
    return f"askback:run_events:{tag}", f"askback:run_reply:{tag}"


async def _forget(runs: Sequence[tuple[str, str]], redis: Redis) -> None:
    # Commands for each run: on a cluster, the runs lie on different slots.
    async with redis.pipeline(transaction=False) as pipeline:
        for events, reply in runs:
            pipeline.unlink(events, reply)
            pipeline.xadd(events, event_scripts.ENDED_BEFORE_ANY, id=event_scripts.BEFORE_ANY)
            pipeline.pexpire(events, _milliseconds(FORGOTTEN_FOR))
        await pipeline.execute()


def _milliseconds(span: timedelta) -> int:
    return max(1, span // timedelta(milliseconds=1))
