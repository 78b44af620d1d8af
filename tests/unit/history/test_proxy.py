"""The wire between clients and a storage process: requests pass, replies pass, wait, or are lost."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from services.local.ports import LOOPBACK, free_port
from tests.history.proxy import Proxy, running_proxy


@dataclass
class Far:
    """A server that answers each line with itself, and remembers what it was asked."""

    proxy: Proxy
    asked: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(LOOPBACK, self.proxy.port)


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    asked: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
            asked.put_nowait(line)
        writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    async with running_proxy(server.sockets[0].getsockname()[1]) as proxy:
        yield Far(proxy, asked)
    server.close()
    await server.wait_closed()


async def test_requests_and_replies_pass(far: Far) -> None:
    reader, writer = await far.connect()
    writer.write(b"one\n")
    assert await reader.readline() == b"one\n"
    writer.close()


async def test_a_held_reply_arrives_once_it_is_released(far: Far) -> None:
    reader, writer = await far.connect()
    writer.write(b"one\n")
    assert await reader.readline() == b"one\n"
    far.proxy.hold()
    writer.write(b"two\n")
    assert [await far.asked.get(), await far.asked.get()] == [b"one\n", b"two\n"]
    reply = asyncio.ensure_future(reader.readline())
    done, _ = await asyncio.wait([reply], timeout=0.05)
    assert not done
    far.proxy.release()
    assert await reply == b"two\n"
    writer.close()


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_held_reply_is_lost_when_the_wire_is_cut_though_its_request_arrived(far: Far, is_new: bool) -> None:
    if is_new:
        far.proxy.hold()
    reader, writer = await far.connect()
    if not is_new:
        writer.write(b"one\n")
        assert await reader.readline() == b"one\n" == await far.asked.get()
        far.proxy.hold()
    writer.write(b"two\n")
    assert await far.asked.get() == b"two\n"
    far.proxy.cut()
    assert await _all_of(reader) == b""
    writer.close()


async def test_a_client_is_dropped_where_nobody_listens_behind_the_wire() -> None:
    async with running_proxy(free_port()) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        assert await _all_of(reader) == b""
        writer.close()


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
