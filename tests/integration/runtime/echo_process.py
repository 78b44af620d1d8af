"""A service process of nothing but the runtime, run by test_process.py."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from pydantic import Field, SecretStr

from services.runtime.process import main
from services.runtime.server import RunningServer, ServerOptions, StartupError, running_server
from services.runtime.settings import Address, ServiceSettings


class EchoSettings(ServiceSettings):
    echo_address: Address = "127.0.0.1:0"
    """Where it listens."""
    start: str = ""
    """How it fails to start."""
    lease_s: int = Field(default=30, ge=5, le=600)
    """A number."""
    api_key: SecretStr | None = None
    """A secret."""


async def echo(requests: Any, context: Any) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)


async def stubborn(request: Any, context: Any) -> None:
    await context.write(request)
    await asyncio.Event().wait()


def register(server: grpc.aio.Server) -> None:
    methods: dict[str, Any] = {
        "BothEcho": grpc.stream_stream_rpc_method_handler(echo),
        "DownStubborn": grpc.unary_stream_rpc_method_handler(stubborn),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", methods),))


@asynccontextmanager
async def open_echo(settings: EchoSettings) -> AsyncIterator[RunningServer]:
    if settings.start == "refused":
        raise StartupError("the database refuses the password")
    if settings.start == "broken":
        raise RuntimeError("postgresql://root:hunter2@db")
    if settings.start == "hanging":
        sys.stderr.write("hanging\n")
        await asyncio.Event().wait()
    options = ServerOptions.from_settings(settings, address=settings.echo_address)
    async with running_server(options=options, register=register, service_names=["test.Echo"]) as running:
        yield running
    sys.stderr.write("unwound\n")


if __name__ == "__main__":
    sys.exit(main(open_echo, settings=EchoSettings, service="echo"))
