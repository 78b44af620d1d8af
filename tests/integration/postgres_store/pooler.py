"""A pooler in transaction mode, which gives each transaction of a client another server connection where it can.

It speaks PostgreSQL's protocol as PgBouncer does in that mode, and is as strict as that is. A client proves who it
is to the server itself, over a connection that then serves everybody.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

_PROTOCOL_3 = 196_608
_CANCEL = 80_877_102
_SSL, _GSS = 80_877_103, 80_877_104
# What PgBouncer keeps for each client; anything else it refuses.
_KEPT = {"user", "database", "application_name", "client_encoding", "datestyle", "timezone"}
_QUERY, _SYNC, _END = b"Q", b"S", b"X"
_READY, _KEY = b"Z", b"K"
_AT_REST = b"I"


@dataclass(eq=False)
class _Server:
    """One connection to the server."""

    replies: asyncio.StreamReader
    asks: asyncio.StreamWriter
    key: bytes = b""
    client: "_Client | None" = None


@dataclass(eq=False)
class _Client:
    asks: asyncio.StreamReader
    replies: asyncio.StreamWriter
    server: _Server | None = None
    unanswered: int = 0
    """Messages that end with a ReadyForQuery which is still to come."""


@dataclass(eq=False)
class _Pooler:
    """At most `size` connections for any number of clients."""

    host: str
    port: int
    size: int
    _idle: "asyncio.Queue[_Server]" = field(default_factory=asyncio.Queue)
    _servers: set[_Server] = field(default_factory=set)
    _keys: dict[bytes, _Client] = field(default_factory=dict)
    _relays: set["asyncio.Task[None]"] = field(default_factory=set)

    async def serve(self, asks: asyncio.StreamReader, replies: asyncio.StreamWriter) -> None:
        client = _Client(asks, replies)
        key = b""
        try:
            code, body = await _read_start(asks)
            while code in (_SSL, _GSS):
                replies.write(b"N")
                code, body = await _read_start(asks)
            if code == _CANCEL:
                await self._cancel(body)
            elif refused := _refused_parameter(body):
                replies.write(_fatal(f"unsupported startup parameter: {refused}"))
            else:
                key = await self._log_in(client, body)
                await self._take_questions(client)
        except (OSError, EOFError):
            pass
        finally:
            self._keys.pop(key, None)
            if client.server is not None:
                # Within a transaction: its end is the connection's.
                self._drop(client.server)
            replies.close()

    def close(self) -> None:
        for relay in self._relays:
            relay.cancel()
        for server in list(self._servers):
            self._drop(server)

    async def _log_in(self, client: _Client, body: bytes) -> bytes:
        server = _Server(*await asyncio.open_connection(self.host, self.port))
        server.asks.write(_start(_PROTOCOL_3, body))
        asking = asyncio.create_task(_pass_on(client.asks, server.asks))
        try:
            while True:
                kind, reply = await _read(server.replies)
                if kind == _READY:
                    break
                if kind == _KEY:
                    server.key = reply
                client.replies.write(_message(kind, reply))
        finally:
            # It waits for the client's next message, of which it has read nothing.
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        self._keys[server.key] = client
        if len(self._servers) < self.size:
            self._servers.add(server)
            relay = asyncio.create_task(self._take_replies(server))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)
            self._idle.put_nowait(server)
        else:
            server.asks.write(_message(_END, b""))
            server.asks.close()
        client.replies.write(_message(_READY, _AT_REST))
        return server.key

    async def _take_questions(self, client: _Client) -> None:
        while True:
            kind, question = await _read(client.asks)
            if kind == _END:
                return
            if client.server is None:
                client.server = await self._living()
                client.server.client = client
            client.unanswered += kind in (_QUERY, _SYNC)
            client.server.asks.write(_message(kind, question))

    async def _living(self) -> _Server:
        # The one that has waited longest, so that a client meets another than before.
        while (server := await self._idle.get()) not in self._servers:
            pass
        return server

    async def _take_replies(self, server: _Server) -> None:
        try:
            while True:
                kind, reply = await _read(server.replies)
                if (client := server.client) is None:
                    continue
                client.replies.write(_message(kind, reply))
                if kind == _READY:
                    client.unanswered -= 1
                    if reply == _AT_REST and not client.unanswered:
                        client.server = server.client = None
                        self._idle.put_nowait(server)
        except (OSError, EOFError):
            if server.client is not None:
                server.client.server = None
                server.client.replies.close()
            self._drop(server)

    def _drop(self, server: _Server) -> None:
        self._servers.discard(server)
        server.client = None
        server.asks.transport.abort()

    async def _cancel(self, key: bytes) -> None:
        client = self._keys.get(key)
        if client is None or client.server is None:
            return
        done, asks = await asyncio.open_connection(self.host, self.port)
        asks.write(_start(_CANCEL, client.server.key))
        await done.read()
        asks.close()


@asynccontextmanager
async def pooler_to(url: str, *, size: int) -> AsyncIterator[str]:
    """The address that leads over it, and over at most `size` connections."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    pooler = _Pooler(parts.hostname, parts.port, size)
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
    finally:
        server.close()
        pooler.close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while True:
        sink.write(_message(*await _read(source)))


async def _read(source: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await source.readexactly(5)
    return head[:1], await source.readexactly(struct.unpack("!i", head[1:])[0] - 4)


async def _read_start(source: asyncio.StreamReader) -> tuple[int, bytes]:
    length, code = struct.unpack("!ii", await source.readexactly(8))
    return code, await source.readexactly(length - 8)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _start(code: int, body: bytes) -> bytes:
    return struct.pack("!ii", len(body) + 8, code) + body


def _refused_parameter(body: bytes) -> str:
    names = body.rstrip(b"\0").split(b"\0")[::2]
    return next((name.decode() for name in names if name.decode().lower() not in _KEPT), "")


def _fatal(text: str) -> bytes:
    return _message(b"E", b"SFATAL\0VFATAL\0C08P01\0M" + text.encode() + b"\0\0")
