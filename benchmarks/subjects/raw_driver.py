"""The limit of the driver: one statement for each call, in process."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import asyncpg

from benchmarks.material import NEWEST, SessionSet, turn
from benchmarks.measure import expect
from benchmarks.subjects import tables
from benchmarks.subjects.base import Subject, Where


class RawDriver:
    def __init__(self, pool: asyncpg.Pool):
        self._pool = pool
        self.versions = {"asyncpg": version("asyncpg")}

    async def fill(self, sessions: SessionSet) -> None:
        await tables.fill(self._pool, sessions)

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        new = turn(call)
        positions = await self._pool.fetch(
            tables.APPEND,
            *sessions.place(session),
            [uuid.uuid4().hex, uuid.uuid4().hex],
            [tables.HUMAN, tables.AI],
            [new.human, new.ai],
            [None, tables.encoded_trace(new.number)],
        )
        expect(len(positions), 2, "messages appended")

    async def newest(self, sessions: SessionSet, session: int) -> None:
        found = await self._pool.fetch(tables.NEWEST, *sessions.place(session), NEWEST)
        expect(len(found), min(NEWEST, sessions.messages), "messages read")

    async def whole(self, sessions: SessionSet, session: int) -> None:
        found = await self._pool.fetch(tables.WHOLE, *sessions.place(session))
        expect(len(found), sessions.messages, "messages read")


@asynccontextmanager
async def open_subject(where: Where) -> AsyncIterator[Subject]:
    async with await tables.open_pool(where.database_url) as pool:
        await tables.create_tables(pool)
        yield RawDriver(pool)
