"""langchain-postgres' chat history: a row for each message, and no way to read a part of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_postgres import PostgresChatMessageHistory
from psycopg_pool import AsyncConnectionPool

from benchmarks.material import NEWEST, SessionSet, Turn, turn
from benchmarks.measure import expect
from benchmarks.subjects.base import CONNECTIONS, Subject, Where

TABLE = "chat_history"


class LangChainHistory:
    def __init__(self, pool: AsyncConnectionPool[Any]):
        self._pool = pool
        self.versions = {package: version(package) for package in ("langchain-postgres", "langchain-core", "psycopg")}

    async def fill(self, sessions: SessionSet) -> None:
        for session in range(sessions.sessions):
            turns = sessions.turns(session)
            await self._add(sessions, session, [message for each in turns for message in _messages(each)])

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        await self._add(sessions, session, _messages(turn(call)))

    async def newest(self, sessions: SessionSet, session: int) -> None:
        messages = await self._messages(sessions, session)
        expect(len(messages[-NEWEST:]), min(NEWEST, sessions.messages), "messages read")

    async def whole(self, sessions: SessionSet, session: int) -> None:
        expect(len(await self._messages(sessions, session)), sessions.messages, "messages read")

    async def _add(self, sessions: SessionSet, session: int, messages: list[BaseMessage]) -> None:
        async with self._pool.connection() as connection:
            await self._history(connection, sessions, session).aadd_messages(messages)

    async def _messages(self, sessions: SessionSet, session: int) -> list[BaseMessage]:
        async with self._pool.connection() as connection:
            messages: list[BaseMessage] = await self._history(connection, sessions, session).aget_messages()
            return messages

    def _history(self, connection: Any, sessions: SessionSet, session: int) -> PostgresChatMessageHistory:
        return PostgresChatMessageHistory(TABLE, sessions.place(session).session_id, async_connection=connection)


def _messages(each: Turn) -> list[BaseMessage]:
    return [HumanMessage(content=each.human), AIMessage(content=each.ai, additional_kwargs={"rag_trace": each.trace})]


@asynccontextmanager
async def open_subject(where: Where) -> AsyncIterator[Subject]:
    async with AsyncConnectionPool(where.database_url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        async with pool.connection() as connection:
            await PostgresChatMessageHistory.acreate_tables(connection, TABLE)
        yield LangChainHistory(pool)
