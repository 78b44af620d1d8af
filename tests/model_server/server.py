"""A server that speaks the OpenAI protocol over HTTP, and says what a test tells it to.

POST /v1/chat/completions, /v1/embeddings and /v1/rerank, each with a script of its own.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.model_server.replies import Embeds, Fails, Reply, Reranks
from tests.model_server.wire import MAX_HEAD_BYTES, Received, ReplyWriter, read_request

ByRequest = Callable[[Received], Reply]


class Script:
    """What one path replies: first what was queued, in order; then what the function says."""

    def __init__(self, otherwise: ByRequest) -> None:
        self._queued: deque[Reply] = deque()
        self._otherwise = otherwise
        self._arrivals = asyncio.Condition()
        self.requests: list[Received] = []

    def in_order(self, *replies: Reply) -> None:
        self._queued.extend(replies)

    def by(self, otherwise: ByRequest) -> None:
        self._otherwise = otherwise

    async def reply_to(self, request: Received) -> Reply:
        async with self._arrivals:
            self.requests.append(request)
            self._arrivals.notify_all()
        return self._queued.popleft() if self._queued else self._otherwise(request)

    async def received(self, count: int) -> Received:
        """The request of that number, counted from 1, once it is there."""
        async with self._arrivals:
            await asyncio.wait_for(self._arrivals.wait_for(lambda: len(self.requests) >= count), 10)
        return self.requests[count - 1]

    @property
    def asked_for(self) -> list[str]:
        """The forms that were asked for, in order; empty strings for plain replies."""
        return [request.asks_for for request in self.requests]


class _Reader(asyncio.StreamReader):
    """Tells of the connection's end without being read: what comes next belongs to the request after this one."""

    def __init__(self) -> None:
        super().__init__(limit=MAX_HEAD_BYTES)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]
        self.ended.set()


class ModelServer:
    def __init__(self) -> None:
        self.port = 0
        self.chat = Script(lambda _: Fails(500, "nothing was scripted"))
        self.embeddings = Script(lambda _: Embeds())
        self.rerank = Script(lambda _: Reranks())

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while (request := await read_request(reader)) is not None:
                await self._reply(request, reader, writer)
        finally:
            writer.close()

    async def _reply(self, request: Received, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        """Replies for as long as the client stays on the line."""
        reply = await self._scripted(request)
        sending = asyncio.create_task(reply.send(request, ReplyWriter(writer)))
        listening = asyncio.create_task(reader.ended.wait())
        try:
            await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                request.hung_up_at = asyncio.get_running_loop().time()
                request.hung_up.set()
        finally:
            for task in (sending, listening):
                task.cancel()
            await asyncio.wait({sending, listening})
        if not sending.cancelled() and isinstance(sending.exception(), ConnectionError):
            request.hung_up.set()

    async def _scripted(self, request: Received) -> Reply:
        scripts = {
            "/v1/chat/completions": self.chat,
            "/v1/embeddings": self.embeddings,
            "/v1/rerank": self.rerank,
        }
        script = scripts.get(request.path)
        return await script.reply_to(request) if script else Fails(404, "no such path")


@asynccontextmanager
async def model_server() -> AsyncIterator[ModelServer]:
    """A server on a free port; leaving it breaks off whatever is still open."""
    scripted = ModelServer()
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            assert isinstance(reader, _Reader)
            await scripted.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            connections.discard(task)

    server = await asyncio.get_running_loop().create_server(
        lambda: asyncio.StreamReaderProtocol(_Reader(), connected), "127.0.0.1", 0
    )
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        await server.wait_closed()
