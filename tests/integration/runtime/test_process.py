import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

PROGRAM = Path(__file__).with_name("echo_process.py")
ROOT = Path(__file__).parents[3]


class Process:
    def __init__(self, process: asyncio.subprocess.Process):
        self.process = process
        self.lines: list[str] = []

    async def line(self, event: str) -> dict[str, Any]:
        """Reads the log up to this event."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while text := (await self.process.stderr.readline()).decode():
                self.lines.append(text.rstrip("\n"))
                if text.startswith("{") and json.loads(text)["event"] == event:
                    found: dict[str, Any] = json.loads(text)
                    return found
                if text.rstrip("\n") == event:
                    return {}
        raise AssertionError(f"it ended without {event}: {self.lines}")

    async def end(self) -> int:
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            self.lines += (await self.process.stderr.read()).decode().splitlines()
            return await self.process.wait()

    def send(self, number: int) -> None:
        self.process.send_signal(number)


@asynccontextmanager
async def started(folder: Path, **settings: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), **settings},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_call_under_way_finish_and_refuses_new_ones(tmp_path: Path, number: int) -> None:
    async with started(tmp_path) as process:
        address = (await process.line("serving"))["address"]
        async with grpc.aio.insecure_channel(address) as channel, grpc.aio.insecure_channel(address) as late:
            call: Any = channel.stream_stream("/test.Echo/BothEcho")(timeout=30)
            await call.write(b"before")
            assert await call.read() == b"before"
            process.send(number)
            await process.line("stopping")
            refused = None
            call_late: Any = late.unary_unary("/test.Echo/Nothing")
            async with asyncio.timeout(20):
                while refused is not grpc.StatusCode.UNAVAILABLE:
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await call_late(b"", timeout=5)
                    refused = caught.value.code()
            await call.write(b"after")
            assert await call.read() == b"after"
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK
        assert await process.end() == 0
    assert process.lines[-2] == "unwound"
    assert json.loads(process.lines[-1])["event"] == "stopped"


async def test_a_second_signal_waits_for_no_call(tmp_path: Path) -> None:
    async with started(tmp_path, ASKBACK_DRAIN_S="3600") as process:
        address = (await process.line("serving"))["address"]
        async with grpc.aio.insecure_channel(address) as channel:
            call_stubborn: Any = channel.unary_stream("/test.Echo/DownStubborn")
            call = call_stubborn(b"first", timeout=30)
            assert await call.read() == b"first"
            process.send(signal.SIGTERM)
            await process.line("stopping")
            process.send(signal.SIGTERM)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await process.end() == 0
    assert "unwound" in process.lines


async def test_a_signal_while_starting_gives_up(tmp_path: Path) -> None:
    async with started(tmp_path, ASKBACK_START="hanging") as process:
        await process.line("hanging")
        process.send(signal.SIGTERM)
        assert await process.end() == 0


async def test_a_taken_port_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        async with started(tmp_path, ASKBACK_ECHO_ADDRESS=address) as process:
            assert await process.end() == 1
    assert process.lines == [f"echo: {address} is in use by another process"]


async def test_an_address_of_another_machine_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    async with started(tmp_path, ASKBACK_ECHO_ADDRESS="192.0.2.1:50051") as process:
        assert await process.end() == 1
    [line] = process.lines
    assert line.startswith("echo: cannot listen on 192.0.2.1:50051: ")


async def test_what_keeps_it_from_starting_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    async with started(tmp_path, ASKBACK_START="refused") as process:
        assert await process.end() == 1
    assert process.lines == ["echo: the database refuses the password"]


async def test_an_unforeseen_failure_is_logged_without_its_text(tmp_path: Path) -> None:
    async with started(tmp_path, ASKBACK_START="broken") as process:
        assert await process.end() == 1
    [line] = process.lines
    assert json.loads(line)["exception"].startswith("builtins.RuntimeError\n")
    assert "hunter2" not in line


async def test_wrong_settings_are_one_line_each_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ASKBACK_LEASE_S=4\nASKBACK_ECHO_ADDRESS=nowhere\n", encoding="utf-8")
    async with started(tmp_path, ASKBACK_LOG_FORMAT="xml") as process:
        assert await process.end() == 2
    assert sorted(process.lines) == [
        "echo: ASKBACK_ECHO_ADDRESS: must be host:port, with a port from 0 to 65535",
        "echo: ASKBACK_LEASE_S: must be a whole number from 5 to 600, not '4'",
        "echo: ASKBACK_LOG_FORMAT: must be one of json, console, not 'xml'",
    ]


async def test_a_placeholder_is_warned_of_and_counts_as_not_set(tmp_path: Path) -> None:
    async with started(tmp_path, ASKBACK_API_KEY="your-key-here") as process:
        assert (await process.line("setting_is_a_placeholder"))["setting"] == "ASKBACK_API_KEY"
        await process.line("serving")
        process.send(signal.SIGTERM)
        assert await process.end() == 0
    assert "your-key-here" not in "".join(process.lines)
