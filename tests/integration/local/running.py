"""What the tests of the local system share: the types of their fixtures."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import psutil

from services.local.servers import Servers

Until = Callable[[Callable[[], bool]], Awaitable[None]]
RunServers = Callable[[], AbstractAsyncContextManager[Servers]]


@dataclass
class Told:
    """What a system had to say to its starter."""

    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str) -> None:
        self.lines.append(line)

    def has(self, part: str) -> bool:
        return any(part in line for line in self.lines)


@dataclass
class Host:
    """Another process that runs the servers, with all that belongs to it."""

    process: asyncio.subprocess.Process
    database_url: str
    redis_url: str
    family: list[psutil.Process]

    def gone(self) -> bool:
        return not any(lives(process) for process in self.family)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


StartHost = Callable[[], Coroutine[None, None, Host]]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
