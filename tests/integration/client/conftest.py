import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from tests.integration.client.command import PATIENCE_S, Finished, Run, environment
from tests.integration.client.scripted import Services, start_services


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """Scripted services on a port of their own."""
    server, services = await start_services()
    yield services
    await server.stop(grace=None)


@pytest.fixture
def askback(services: Services) -> Run:
    """Runs the command with nobody at a terminal."""

    async def run(*arguments: str, stdin: str = "") -> Finished:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "askback.cli",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(services),
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), PATIENCE_S)
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())

    return run
