"""Servers to start and to stop, processes to kill and to look for."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from services.local.home import held_home
from services.local.servers import Servers, running_servers
from tests.integration.local.running import Host, RunServers, StartHost, Told, Until

CHECKOUT = Path(__file__).parents[3]
HOST = Path(__file__).with_name("host.py")
PATIENCE_S = 30.0


@pytest.fixture
def until() -> Until:
    """Waits for a condition, and fails where it does not come."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - other processes set no event here
                await asyncio.sleep(0.02)

    return wait


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def run_servers(home: Path, told: Told) -> RunServers:
    """Runs the servers on this test's home, in this process."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Servers]:
        with held_home(home) as held:
            async with running_servers(held, report=told, durable=False) as servers:
                yield servers

    return run


@pytest.fixture
async def start_host(home: Path) -> AsyncIterator[StartHost]:
    """Runs the servers on this test's home, in a process of their own that may be killed."""
    hosts: list[asyncio.subprocess.Process] = []

    async def start() -> Host:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(HOST), str(home)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        hosts.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            urls = json.loads(await process.stdout.readline())
        family = psutil.Process(process.pid).children(recursive=True)
        return Host(process, urls["database_url"], urls["redis_url"], family)

    yield start
    for process in hosts:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()
