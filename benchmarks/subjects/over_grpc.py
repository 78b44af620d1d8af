"""The storage service, and the bare handler, called alike: through one channel from this process to another."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import asyncpg
import grpc.aio
from google.protobuf.json_format import ParseDict

from askback.client.channel import CHANNEL_OPTIONS, target_of
from askback.rag.v1.trace_pb2 import RagTrace
from askback.storage.v1 import session_pb2
from askback.storage.v1 import session_service_pb2 as wire
from askback.storage.v1.session_service_pb2_grpc import SessionServiceStub
from benchmarks.material import NEWEST, SessionSet, turn
from benchmarks.measure import expect
from benchmarks.subjects import tables
from benchmarks.subjects.base import Subject, Where

if TYPE_CHECKING:
    from askback.storage.v1.session_service_pb2_grpc import SessionServiceAsyncStub

_TIMEOUT_S = 60.0
_FILL_TURNS = 200
_FILL_CALLERS = 4
_LARGEST_PAGE = 1_000
_LIST_PAGE = 100


class OverGrpc:
    def __init__(self, sessions: "SessionServiceAsyncStub"):
        self._calls = sessions
        self.versions = {"grpcio": grpc.__version__, "protobuf": version("protobuf")}

    async def fill(self, sessions: SessionSet) -> None:
        gate = asyncio.Semaphore(_FILL_CALLERS)

        async def fill_one(session: int) -> None:
            async with gate:
                turns = sessions.turns(session)
                for begin in range(0, len(turns), _FILL_TURNS):
                    messages = [
                        message
                        for each in turns[begin : begin + _FILL_TURNS]
                        for message in _messages(each.number, traces=sessions.traces)
                    ]
                    await self._append(sessions, session, messages)

        async with asyncio.TaskGroup() as group:
            for session in range(sessions.sessions):
                group.create_task(fill_one(session))

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        response = await self._append(sessions, session, _messages(turn(call).number, traces=True))
        expect(len(response.messages), 2, "messages appended")

    async def newest(self, sessions: SessionSet, session: int) -> None:
        user_id, session_id = sessions.place(session)
        request = wire.LoadSessionRequest(
            user_id=user_id, session_id=session_id, max_messages=NEWEST, include_traces=True
        )
        response = await self._calls.LoadSession(request, timeout=_TIMEOUT_S)
        expect(len(response.messages), min(NEWEST, sessions.messages), "messages read")
        expect(response.messages[-1].HasField("rag_trace"), sessions.traces, "a trace on the answer")

    async def whole(self, sessions: SessionSet, session: int) -> None:
        user_id, session_id = sessions.place(session)
        request = wire.ListMessagesRequest(user_id=user_id, session_id=session_id, page_size=_LARGEST_PAGE)
        found = 0
        while True:
            page = await self._calls.ListMessages(request, timeout=_TIMEOUT_S)
            found += len(page.messages)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        expect(found, sessions.messages, "messages read")

    async def list_sessions(self, sessions: SessionSet, session: int) -> None:
        request = wire.ListSessionsRequest(user_id=sessions.place(session).user_id, page_size=_LIST_PAGE)
        response = await self._calls.ListSessions(request, timeout=_TIMEOUT_S)
        expect(len(response.sessions), min(_LIST_PAGE, sessions.sessions), "sessions listed")

    async def _append(
        self, sessions: SessionSet, session: int, messages: list[session_pb2.Message]
    ) -> wire.AppendMessagesResponse:
        user_id, session_id = sessions.place(session)
        request = wire.AppendMessagesRequest(
            user_id=user_id, session_id=session_id, messages=messages, request_id=uuid.uuid4().hex
        )
        return await self._calls.AppendMessages(request, timeout=_TIMEOUT_S)


class BareOverGrpc(OverGrpc):
    """Its sessions are filled beside it, since it makes none."""

    def __init__(self, sessions: "SessionServiceAsyncStub", pool: asyncpg.Pool):
        super().__init__(sessions)
        self._pool = pool

    async def fill(self, sessions: SessionSet) -> None:
        await tables.fill(self._pool, sessions, trace=_encoded_trace)


@cache
def _stored(number: int, traces: bool) -> tuple[session_pb2.Message, session_pb2.Message]:
    each = turn(number)
    return (
        session_pb2.Message(type=session_pb2.MESSAGE_TYPE_HUMAN, content=each.human),
        session_pb2.Message(
            type=session_pb2.MESSAGE_TYPE_AI,
            content=each.ai,
            rag_trace=ParseDict(each.trace, RagTrace()) if traces else None,
        ),
    )


@cache
def _encoded_trace(number: int) -> bytes:
    return _stored(number, True)[1].rag_trace.SerializeToString()


def _messages(number: int, *, traces: bool) -> list[session_pb2.Message]:
    return list(_stored(number, traces))


@asynccontextmanager
async def open_subject(where: Where) -> AsyncIterator[Subject]:
    async with grpc.aio.insecure_channel(target_of(where.address), options=CHANNEL_OPTIONS) as channel:
        sessions: SessionServiceAsyncStub = SessionServiceStub(channel)
        if not where.database_url:
            yield OverGrpc(sessions)
            return
        async with asyncpg.create_pool(where.database_url, min_size=1, max_size=1) as pool:
            yield BareOverGrpc(sessions, pool)
