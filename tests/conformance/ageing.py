"""Time that has passed, for what is stored."""

import asyncpg

from services.storage.store.base import QUEUE_PLACE_KEPT


class Ageing:
    """Lets time pass for what is stored, without waiting for it."""

    def __init__(self, connection: asyncpg.Connection):
        self._connection = connection

    async def expire_question(self, user_id: str, task_id: str) -> None:
        await self._connection.execute(
            "UPDATE hitl_tasks SET expire_time = now() WHERE user_id = $1 AND task_id = $2", user_id, task_id
        )
        await self._connection.execute(
            "UPDATE sessions SET pending_hitl_expire_time = now() WHERE user_id = $1 AND pending_hitl_task_id = $2",
            user_id,
            task_id,
        )

    async def expire_lease(self, user_id: str, run_id: str) -> None:
        await self._connection.execute(
            "UPDATE runs SET lease_expire_time = now() WHERE user_id = $1 AND run_id = $2", user_id, run_id
        )

    async def lose_place(self, user_id: str, run_id: str) -> None:
        """Nobody has asked for it since long ago."""
        await self._connection.execute(
            "UPDATE runs SET queue_asked_time = now() - $3::interval WHERE user_id = $1 AND run_id = $2",
            user_id,
            run_id,
            QUEUE_PLACE_KEPT,
        )

    async def pass_a_day(self, user_id: str) -> None:
        """For the requests that the user has made."""
        await self._connection.execute(
            "UPDATE requests SET create_time = create_time - interval '1 day' WHERE user_id = $1", user_id
        )

    async def make_simultaneous(self, user_id: str) -> None:
        """All that the user's lists are ordered by happened at one moment."""
        for table, column in (("sessions", "update_time"), ("hitl_tasks", "create_time"), ("runs", "create_time")):
            await self._connection.execute(
                f"UPDATE {table} SET {column} = (SELECT min({column}) FROM {table} WHERE user_id = $1)"
                " WHERE user_id = $1",
                user_id,
            )
