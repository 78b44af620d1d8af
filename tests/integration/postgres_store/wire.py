"""A way to PostgreSQL over which things get lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

# What PostgreSQL says once a transaction is committed, and once it is at rest outside of one.
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
AT_REST = b"Z\x00\x00\x00\x05I"


class Wire:
    """Carries bytes between its clients and a server, as long as it is let."""

    def __init__(self, host: str, port: int):
        self.url = ""
        """The address that leads over it."""
        self._opened = asyncio.Event()
        self._host, self._port = host, port
        self._carries = asyncio.Event()
        self._carries.set()
        self._sides: set[asyncio.StreamWriter] = set()
        self._losing = b""
        self._question = b""
        self._garbled = b""

    @property
    def loses(self) -> bool:
        """Whether a reply is still to be lost."""
        return bool(self._losing)

    def lose(self, reply: bytes, *, to: bytes = b"") -> None:
        """The next reply that holds this, to a question that holds that, is lost with its connection."""
        self._losing, self._question = reply, to

    def garble(self, word: bytes) -> None:
        """From now on this comes from the server as bytes that are no text; nothing restores it but b""."""
        self._garbled = word

    def stall(self) -> None:
        """Takes connections and bytes, and passes none on: a server that is frozen, or a hole on the way to it."""
        self._carries.clear()

    def resume(self) -> None:
        self._carries.set()

    def strand(self) -> None:
        """Nothing comes any more over the connections there are; later ones are well."""
        self.stall()
        self._carries = asyncio.Event()
        self._carries.set()

    async def opens(self) -> None:
        """Waits for another connection."""
        self._opened.clear()
        await self._opened.wait()

    def cut(self) -> None:
        for side in list(self._sides):
            side.transport.abort()

    async def carry(self, asking: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._opened.set()
        relays: list[asyncio.Task[None]] = []
        sides = [client]
        self._sides.add(client)
        carries = self._carries
        try:
            await carries.wait()
            answering, server = await asyncio.open_connection(self._host, self._port)
            sides.append(server)
            self._sides.add(server)
            asked = asyncio.Event()
            relays += [
                asyncio.create_task(self._ask(asking, server, carries, asked)),
                asyncio.create_task(self._answer(answering, client, carries, asked)),
            ]
            await asyncio.wait(relays, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for relay in relays:
                relay.cancel()
            await asyncio.gather(*relays, return_exceptions=True)
            for side in sides:
                self._sides.discard(side)
                side.transport.abort()

    async def _ask(
        self,
        client: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        carries: asyncio.Event,
        asked: asyncio.Event,
    ) -> None:
        while carried := await client.read(65_536):
            await carries.wait()
            if self._losing and self._question in carried:
                asked.set()
            server.write(carried)
            await server.drain()

    async def _answer(
        self,
        server: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        carries: asyncio.Event,
        asked: asyncio.Event,
    ) -> None:
        while carried := await server.read(65_536):
            await carries.wait()
            if asked.is_set() and self._losing and self._losing in carried:
                self._losing = b""
                return
            if self._garbled:
                carried = carried.replace(self._garbled, b"\xff" * len(self._garbled))
            client.write(carried)
            await client.drain()


@asynccontextmanager
async def wire_to(url: str) -> AsyncIterator[Wire]:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    wire = Wire(parts.hostname, parts.port)
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    wire.url = urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
    try:
        yield wire
    finally:
        server.close()
        wire.resume()
        wire.cut()
