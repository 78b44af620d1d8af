"""LangGraph's checkpointer: the state of a thread, with all of its messages, as one checkpoint after another.

Counted is the one checkpoint that ends a turn, with the history at hand. A graph reads the last one first and
writes several on the way, which is not counted. Sessions are filled with their last checkpoint alone, where a real
thread has one for each step, each with the whole history so far.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.material import NEWEST, SessionSet, Turn, turn
from benchmarks.measure import expect
from benchmarks.subjects.base import CONNECTIONS, Subject, Where

CHANNEL = "messages"


class LangGraphSaver:
    def __init__(self, saver: AsyncPostgresSaver):
        self._saver = saver
        self.versions = {
            package: version(package) for package in ("langgraph-checkpoint-postgres", "langchain-core", "psycopg")
        }

    async def fill(self, sessions: SessionSet) -> None:
        for session in range(sessions.sessions):
            await self._put(sessions, session, sessions.turns(session))

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        await self._put(sessions, session, [*sessions.turns(session), turn(call)])

    async def newest(self, sessions: SessionSet, session: int) -> None:
        messages = await self._messages(sessions, session)
        expect(len(messages[-NEWEST:]), min(NEWEST, sessions.messages), "messages read")

    async def whole(self, sessions: SessionSet, session: int) -> None:
        expect(len(await self._messages(sessions, session)), sessions.messages, "messages read")

    async def _put(self, sessions: SessionSet, session: int, turns: Sequence[Turn]) -> None:
        number = self._saver.get_next_version(None, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {CHANNEL: [message for each in turns for message in _messages(each.number)]}
        checkpoint["channel_versions"] = {CHANNEL: number}
        metadata: Any = {"source": "loop", "step": len(turns), "parents": {}}
        await self._saver.aput(_config(sessions, session), checkpoint, metadata, {CHANNEL: number})

    async def _messages(self, sessions: SessionSet, session: int) -> list[BaseMessage]:
        found = await self._saver.aget_tuple(_config(sessions, session))
        messages: list[BaseMessage] = [] if found is None else found.checkpoint["channel_values"][CHANNEL]
        return messages


def _config(sessions: SessionSet, session: int) -> Any:
    return {"configurable": {"thread_id": sessions.place(session).session_id, "checkpoint_ns": ""}}


@cache
def _messages(number: int) -> tuple[BaseMessage, BaseMessage]:
    each = turn(number)
    return (
        HumanMessage(content=each.human, id=f"{number}-human"),
        AIMessage(content=each.ai, id=f"{number}-ai", additional_kwargs={"rag_trace": each.trace}),
    )


@asynccontextmanager
async def open_subject(where: Where) -> AsyncIterator[Subject]:
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(where.database_url, min_size=1, max_size=CONNECTIONS, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield LangGraphSaver(saver)
