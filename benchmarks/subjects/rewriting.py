"""The way of saving that deletes a session's rows and inserts its whole history anew, at its quickest: by COPY."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import asyncpg

from benchmarks.material import SessionSet, turn
from benchmarks.subjects import tables
from benchmarks.subjects.base import Subject, Where


class Rewriting:
    """Reads are the raw driver's, and measured there."""

    def __init__(self, pool: asyncpg.Pool):
        self._pool = pool
        self.versions = {"asyncpg": version("asyncpg")}

    async def fill(self, sessions: SessionSet) -> None:
        await tables.fill(self._pool, sessions)

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        """The history is at hand: whoever saves so has read it before, which is not counted."""
        place = sessions.place(session)
        turns = [*sessions.turns(session), turn(call)]
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "UPDATE sessions SET revision = revision + 1, message_count = $3, update_time = now() "
                "WHERE user_id = $1 AND session_id = $2",
                *place,
                2 * len(turns),
            )
            await connection.execute("DELETE FROM messages WHERE user_id = $1 AND session_id = $2", *place)
            await tables.copy_messages(connection, place, turns)

    async def newest(self, sessions: SessionSet, session: int) -> None:
        raise AssertionError("measured as the raw driver's")

    async def whole(self, sessions: SessionSet, session: int) -> None:
        raise AssertionError("measured as the raw driver's")


@asynccontextmanager
async def open_subject(where: Where) -> AsyncIterator[Subject]:
    async with await tables.open_pool(where.database_url) as pool:
        await tables.create_tables(pool)
        yield Rewriting(pool)
