"""A service of text in, text out, on a real server and a real channel."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from services.runtime.server import RunningServer, ServerOptions, running_server

SERVICE = "test.Echo"


@dataclass(frozen=True)
class Served:
    running: RunningServer
    channel: grpc.aio.Channel

    def call(self, method: str, request: Any = None, **given: Any) -> Any:
        """Unary where the method is called Unary…, and so on for Down…, Up… and Both…."""
        make = {
            "Unary": self.channel.unary_unary,
            "Down": self.channel.unary_stream,
            "Up": self.channel.stream_unary,
            "Both": self.channel.stream_stream,
        }
        kind = next(kind for kind in make if method.startswith(kind))
        call: Any = make[kind](
            f"/{SERVICE}/{method}",
            request_serializer=StringValue.SerializeToString,
            response_deserializer=StringValue.FromString,
        )
        if kind in ("Unary", "Down") and request is None:
            request = StringValue(value="hello")
        return call(request, timeout=given.pop("timeout", 20), **given)

    async def failure(self, method: str, request: Any = None, **given: Any) -> grpc.aio.AioRpcError:
        """Reads the call to its end, which must be an error."""
        call = self.call(method, request, **given)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            if method.startswith(("Down", "Both")):
                async for _ in call:
                    pass
            else:
                await call
        return caught.value


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    # Channels outlive their servers, so that a test can see how a server leaves its callers.
    channels = AsyncExitStack()

    @asynccontextmanager
    async def serving(
        *, ready: Callable[[], Awaitable[bool]] | None = None, options: dict[str, Any] | None = None, **handlers: Any
    ) -> AsyncIterator[Served]:
        make: dict[str, Any] = {
            "Unary": grpc.unary_unary_rpc_method_handler,
            "Down": grpc.unary_stream_rpc_method_handler,
            "Up": grpc.stream_unary_rpc_method_handler,
            "Both": grpc.stream_stream_rpc_method_handler,
        }

        def register(server: grpc.aio.Server) -> None:
            methods = {
                method: next(make[kind] for kind in make if method.startswith(kind))(
                    handler,
                    request_deserializer=StringValue.FromString,
                    response_serializer=StringValue.SerializeToString,
                )
                for method, handler in handlers.items()
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))

        async with running_server(
            options=ServerOptions(**{"address": "127.0.0.1:0", "drain_s": 5.0, **(options or {})}),
            register=register,
            service_names=[SERVICE],
            ready=ready,
        ) as running:
            yield Served(running, await channels.enter_async_context(grpc.aio.insecure_channel(running.address)))

    async with channels:
        yield serving
