"""The upkeep over PostgreSQL, put together."""

from dataclasses import replace
from datetime import timedelta

from services.storage.store.base import Upkeep
from services.storage.store.events import RunEventLog
from services.storage.store.postgres import due, retention
from services.storage.store.postgres.database import Database, PostgresLimits


class PostgresUpkeep(Upkeep):
    """On connections of its own, opened by the first calls, so that no caller waits for them; they go with `close`.

    The tables are those of a store that was opened before. `run_ttl` is how long a run is kept after its end.
    """

    def __init__(self, url: str, *, limits: PostgresLimits, events: RunEventLog, run_ttl: timedelta):
        # What is due waits for no deletion of what is old.
        self._database = Database(url, replace(limits, pool_size=2))
        self._session_ttl = limits.session_ttl
        self._events = events
        self._old_runs = retention.OldRuns(self._database, ttl=run_ttl)

    async def close(self) -> None:
        await self._database.close()

    async def end_expired_runs(self) -> int:
        return await due.end_expired_runs(self._database, self._events)

    async def drop_lost_places(self) -> int:
        return await due.drop_lost_places(self._database)

    async def expire_hitl_tasks(self) -> int:
        return await due.expire_hitl_tasks(self._database)

    async def delete_expired_sessions(self) -> int:
        return await retention.delete_expired_sessions(self._database, ttl=self._session_ttl, events=self._events)

    async def delete_old_runs(self) -> int:
        return await self._old_runs.delete_batch()

    async def forget_requests(self) -> int:
        return await retention.forget_requests(self._database)
