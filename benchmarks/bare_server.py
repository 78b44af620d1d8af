"""The bare handler: a gRPC server that does the one thing that a call cannot do without.

An append is one SQL statement. A read is one look-up of the session's revision, and the reply's bytes from memory.
There is no validation, no idempotency, no log, no limit and no upkeep: what a service has beyond this is what it costs.
It runs as `python -m benchmarks.bare_server`, with its address and its database in the environment.
"""

import asyncio
import os
import uuid
from collections.abc import Sequence
from typing import Any

import asyncpg
import grpc.aio
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckResponse
from uvloop import new_event_loop

from askback.rag.v1.trace_pb2 import RagTrace
from askback.storage.v1 import session_pb2
from askback.storage.v1 import session_service_pb2 as wire
from benchmarks.subjects import tables

ADDRESS, DATABASE_URL = "BENCH_BARE_ADDRESS", "BENCH_BARE_DATABASE_URL"
PAGE_MESSAGES = 900
"""About what fits 3 MiB, as a page of the service does."""
_MAX_BYTES = 16 * 1024 * 1024


class BareHandler:
    def __init__(self, pool: asyncpg.Pool):
        self._pool = pool
        self._memory: dict[tuple[str, ...], tuple[int, bytes]] = {}

    async def append(self, request: wire.AppendMessagesRequest, context: object) -> wire.AppendMessagesResponse:
        ids = [uuid.uuid4().hex for _ in request.messages]
        stored = await self._pool.fetch(
            tables.APPEND,
            request.user_id,
            request.session_id,
            ids,
            [message.type for message in request.messages],
            [message.content for message in request.messages],
            [_trace_of(message) for message in request.messages],
        )
        response = wire.AppendMessagesResponse(messages=request.messages)
        for message, message_id, row in zip(response.messages, ids, stored, strict=True):
            message.message_id, message.position = message_id, row["position"]
        return response

    async def load(self, request: wire.LoadSessionRequest, context: object) -> bytes:
        place = (request.user_id, request.session_id)
        revision = await self._pool.fetchval(tables.REVISION, *place)
        held = self._memory.get(place)
        if held is None or held[0] != revision:
            rows = await self._pool.fetch(tables.NEWEST, *place, request.max_messages)
            session = session_pb2.Session(user_id=place[0], session_id=place[1], revision=revision)
            response = wire.LoadSessionResponse(session=session, messages=_messages(rows[::-1]))
            held = self._memory[place] = (revision, response.SerializeToString())
        return held[1]

    async def page(self, request: wire.ListMessagesRequest, context: object) -> bytes:
        place = (request.user_id, request.session_id)
        revision = await self._pool.fetchval(tables.REVISION, *place)
        held = self._memory.get((*place, request.page_token))
        if held is None or held[0] != revision:
            rows = await self._pool.fetch(tables.PAGE, *place, int(request.page_token or 0), PAGE_MESSAGES + 1)
            more = len(rows) > PAGE_MESSAGES
            messages = _messages(rows[:PAGE_MESSAGES])
            token = str(messages[-1].position) if more else ""
            response = wire.ListMessagesResponse(messages=messages, next_page_token=token, revision=revision)
            held = self._memory[(*place, request.page_token)] = (revision, response.SerializeToString())
        return held[1]


def _trace_of(message: session_pb2.Message) -> bytes | None:
    return message.rag_trace.SerializeToString() if message.HasField("rag_trace") else None


def _messages(rows: Sequence[Any]) -> list[session_pb2.Message]:
    return [
        session_pb2.Message(
            position=row["position"],
            message_id=row["message_id"],
            type=row["type"],
            status=session_pb2.MESSAGE_STATUS_COMPLETE,
            content=row["content"],
            create_time=row["create_time"],
            rag_trace=None if row["trace"] is None else RagTrace.FromString(row["trace"]),
        )
        for row in rows
    ]


async def serve(address: str, database_url: str) -> None:
    async with await tables.open_pool(database_url) as pool:
        await tables.create_tables(pool)
        handler = BareHandler(pool)
        server = grpc.aio.server(
            options=[("grpc.max_send_message_length", _MAX_BYTES), ("grpc.max_receive_message_length", _MAX_BYTES)]
        )
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "AppendMessages": grpc.unary_unary_rpc_method_handler(
                handler.append,
                request_deserializer=wire.AppendMessagesRequest.FromString,
                response_serializer=wire.AppendMessagesResponse.SerializeToString,
            ),
            # Bytes as they are.
            "LoadSession": grpc.unary_unary_rpc_method_handler(
                handler.load, request_deserializer=wire.LoadSessionRequest.FromString
            ),
            "ListMessages": grpc.unary_unary_rpc_method_handler(
                handler.page, request_deserializer=wire.ListMessagesRequest.FromString
            ),
        }
        health = HealthServicer()
        await health.set("", HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        server.add_registered_method_handlers("askback.storage.v1.SessionService", handlers)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("askback.storage.v1.SessionService", handlers),)
        )
        server.add_insecure_port(address)
        await server.start()
        await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(os.environ[ADDRESS], os.environ[DATABASE_URL]))
