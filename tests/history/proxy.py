"""A wire between clients and one storage process, on which replies can be held back or lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

from services.local.ports import LOOPBACK


class Proxy:
    """Listens on a port of its own for as long as it is open; the process behind it may come and go."""

    def __init__(self, upstream_port: int):
        self.port = 0
        self._upstream_port = upstream_port
        self._links: set[_Link] = set()
        self._held = False

    @property
    def held(self) -> bool:
        """Whether replies are held back."""
        return self._held

    def hold(self) -> None:
        """Lets requests through, and keeps every reply back."""
        self._held = True
        for link in self._links:
            link.hold()

    def release(self) -> None:
        """Lets what is held back through."""
        self._held = False
        for link in self._links:
            link.release()

    def cut(self) -> None:
        """Drops every connection, with the replies that are held back."""
        self._held = False
        for link in tuple(self._links):
            link.cut()

    async def connect(self, link: "_Link") -> None:
        """Joins a client's connection with one to the process, or drops it where nobody listens there."""
        self._links.add(link)
        try:
            await asyncio.get_running_loop().create_connection(lambda: link.far_side, LOOPBACK, self._upstream_port)
        except OSError:
            link.cut()
            return
        if self._held:
            link.hold()

    def forget(self, link: "_Link") -> None:
        self._links.discard(link)


class _Side(asyncio.Protocol):
    """One end of a link: what arrives here leaves at the other."""

    def __init__(self, link: "_Link"):
        self.link = link
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        early, self._early = self._early, []
        for data in early:
            self.transport.write(data)
        if self.link.is_cut:
            self.transport.abort()

    def send(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.send(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.cut()


class _Link:
    def __init__(self, proxy: Proxy):
        self._proxy = proxy
        self.is_cut = False
        self.near_side, self.far_side = _Side(self), _Side(self)
        self.near_side.other, self.far_side.other = self.far_side, self.near_side

    def hold(self) -> None:
        if self.far_side.transport is not None:
            self.far_side.transport.pause_reading()

    def release(self) -> None:
        if self.far_side.transport is not None:
            self.far_side.transport.resume_reading()

    def cut(self) -> None:
        self.is_cut = True
        self._proxy.forget(self)
        for side in (self.near_side, self.far_side):
            if side.transport is not None:
                side.transport.abort()


@asynccontextmanager
async def running_proxy(upstream_port: int) -> AsyncIterator[Proxy]:
    """A proxy to a port of this machine."""
    proxy = Proxy(upstream_port)
    joins: set[asyncio.Task[None]] = set()

    def accept() -> _Side:
        link = _Link(proxy)
        join = asyncio.ensure_future(proxy.connect(link))
        joins.add(join)
        join.add_done_callback(joins.discard)
        return link.near_side

    server = await asyncio.get_running_loop().create_server(accept, LOOPBACK, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        for join in tuple(joins):
            join.cancel()
            with suppress(asyncio.CancelledError):
                await join
