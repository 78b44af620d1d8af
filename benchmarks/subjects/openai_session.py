"""The OpenAI Agents SDK's session over SQLAlchemy: a row for each item, as JSON text."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.material import NEWEST, SessionSet, Turn, turn
from benchmarks.measure import expect
from benchmarks.subjects.base import CONNECTIONS, Subject, Where, postgres_url


class OpenAISession:
    def __init__(self, engine: AsyncEngine):
        self._engine = engine
        self._held: dict[str, SQLAlchemySession] = {}
        self.versions = {package: version(package) for package in ("openai-agents", "sqlalchemy", "asyncpg")}

    async def fill(self, sessions: SessionSet) -> None:
        for session in range(sessions.sessions):
            items = [item for each in sessions.turns(session) for item in _items(each)]
            await self._session(sessions, session).add_items(items)

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        await self._session(sessions, session).add_items(_items(turn(call)))

    async def newest(self, sessions: SessionSet, session: int) -> None:
        items = await self._session(sessions, session).get_items(limit=NEWEST)
        expect(len(items), min(NEWEST, sessions.messages), "messages read")

    async def whole(self, sessions: SessionSet, session: int) -> None:
        expect(len(await self._session(sessions, session).get_items()), sessions.messages, "messages read")

    def _session(self, sessions: SessionSet, session: int) -> SQLAlchemySession:
        """Kept, since each one has table objects of its own, for which every statement is compiled anew."""
        session_id = sessions.place(session).session_id
        if session_id not in self._held:
            self._held[session_id] = SQLAlchemySession(session_id, engine=self._engine)
        return self._held[session_id]


def _items(each: Turn) -> list[Any]:
    return [
        {"role": "user", "content": each.human},
        {"role": "assistant", "content": each.ai, "rag_trace": each.trace},
    ]


@asynccontextmanager
async def open_subject(where: Where) -> AsyncIterator[Subject]:
    engine = create_async_engine(
        postgres_url(where.database_url, driver="asyncpg"), pool_size=CONNECTIONS, max_overflow=0
    )
    try:
        # Any call makes the tables, once asked to.
        await SQLAlchemySession("none", engine=engine, create_tables=True).get_items()
        yield OpenAISession(engine)
    finally:
        await engine.dispose()
