"""A server's stream, as something to iterate over that ends its call when it is left."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import grpc

from askback.client.status import error_from_rpc

ResponseT = TypeVar("ResponseT")


class Stream(AsyncIterator[ResponseT], Generic[ResponseT]):
    """The messages of one streaming call, in order; read by one task.

    The call begins with the first read, and is cancelled at once when the `async with` around it ends,
    on `aclose()`, when the reading task is cancelled, and when the last reference to it goes: so
    `async for event in agent.stream_chat(...)` may be left by `break` without more ado. What is bound to
    a name lives as long as the name: use `async with` there. Failures are raised as AskbackError.
    """

    def __init__(self, start: "Callable[[], grpc.aio.UnaryStreamCall[Any, ResponseT]]") -> None:
        self._start = start
        self._call: grpc.aio.UnaryStreamCall[Any, ResponseT] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    async def __aenter__(self) -> "Stream[ResponseT]":
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> "Stream[ResponseT]":
        return self

    async def __anext__(self) -> ResponseT:
        if self._ended:
            raise StopAsyncIteration
        if self._call is None:
            self._loop = asyncio.get_running_loop()
            self._call = self._start()
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            self._ended = True
            raise error_from_rpc(error) from error
        except BaseException:
            await self.aclose()
            raise
        if message is grpc.aio.EOF:
            self._ended = True
            raise StopAsyncIteration
        return cast(ResponseT, message)

    async def aclose(self) -> None:
        """Cancels the call where it is still under way; further reads find the end."""
        self._ended = True
        if self._call is not None:
            self._call.cancel()

    def __del__(self) -> None:
        # A collector may run in any thread, and after the loop is gone.
        if self._call is not None and self._loop is not None and not self._ended and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call.cancel)
