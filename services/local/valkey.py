"""An embedded Valkey: a cache alone, which may forget everything at any time."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from services.local.accounts import make_private_folder, server_account
from services.local.binaries import ValkeyBinary
from services.local.errors import StartFailed
from services.local.ports import LOOPBACK, free_port
from services.local.process import Command, Report, Service
from services.local.reach import SHARED_FOLDERS, reachable_valkey

STOPS = ((signal.SIGTERM, 5.0),)
START_WITHIN_S = 20.0
PORT_ATTEMPTS = 5


@dataclass(frozen=True)
class Valkey:
    """A running server."""

    port: int
    password: str
    service: Service

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"


@asynccontextmanager
async def running_valkey(
    *,
    folder: Path,
    log: Path,
    binary: ValkeyBinary,
    copies: Sequence[Path] = SHARED_FOLDERS,
    report: Report,
) -> AsyncIterator[Valkey]:
    """A server with a password of its own for each start, which it is told on its standard input."""
    account = server_account(folder)
    binary = reachable_valkey(binary, account, copies=copies)
    make_private_folder(folder, account)
    password = secrets.token_urlsafe(24)
    for attempt in range(1, PORT_ATTEMPTS + 1):
        port = free_port()

        async def is_ready(port: int = port) -> bool:
            return await _answers(port, password)

        command = Command(
            name="Valkey",
            argv=[binary.server, "-"],
            cwd=folder,
            log=log,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            account=account,
            stdin=_configuration(port, password).encode(),
            stops=STOPS,
        )
        service = Service(command, ready=is_ready, ready_within_s=START_WITHIN_S, report=report)
        try:
            await service.start()
        except StartFailed as error:
            if attempt == PORT_ATTEMPTS or "already in use" not in error.log_tail:
                raise
        else:
            break
    try:
        yield Valkey(port, password, service)
    finally:
        await service.stop()


def _configuration(port: int, password: str) -> str:
    return f"""\
bind {LOOPBACK}
port {port}
requirepass {password}
save ""
appendonly no
maxmemory 256mb
maxmemory-policy allkeys-lru
loglevel warning
"""


async def _answers(port: int, password: str) -> bool:
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                writer.write(f"AUTH {password}\r\nPING\r\n".encode())
                return await reader.readline() == b"+OK\r\n" and await reader.readline() == b"+PONG\r\n"
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
