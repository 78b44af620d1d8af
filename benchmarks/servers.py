"""The servers of a run: PostgreSQL and Valkey, the storage service as its users start it, and the bare handler."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from benchmarks import bare_server
from benchmarks.clients import CHECKOUT
from benchmarks.subjects.base import CONNECTIONS
from services.local.health import serves
from services.local.home import Home
from services.local.ports import LOOPBACK, free_port
from services.local.process import Command, Report, Service
from services.local.servers import Servers, running_servers

_READY_WITHIN_S = 60.0


class Stage:
    """Where a run takes place."""

    def __init__(self, home: Home, servers: Servers, *, logs: Path, report: Report):
        self.logs = logs
        self._home = home
        self._servers = servers
        self._report = report

    @property
    def admin_url(self) -> str:
        assert self._servers.postgres is not None
        return self._servers.postgres.url("postgres")

    async def versions(self) -> dict[str, str]:
        connection = await asyncpg.connect(self.admin_url)
        try:
            postgres = await connection.fetchval("SHOW server_version")
        finally:
            await connection.close()
        return {"PostgreSQL": postgres, "Valkey": await _valkey_version(self._servers.redis_url)}

    async def database(self, name: str) -> str:
        """The URL of a database of that name, which is made where there is none."""
        connection = await asyncpg.connect(self.admin_url)
        try:
            if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", name):
                await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()
        return urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{name}"))

    async def settle(self) -> None:
        """What filling left to do for later is done now, and told to the planner."""
        connection = await asyncpg.connect(self.admin_url)
        try:
            names = [
                row["datname"]
                for row in await connection.fetch("SELECT datname FROM pg_database WHERE NOT datistemplate")
            ]
        finally:
            await connection.close()
        for name in names:
            connection = await asyncpg.connect(urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{name}")))
            try:
                await connection.execute("ANALYZE")
                await connection.execute("CHECKPOINT")
            finally:
                await connection.close()

    @asynccontextmanager
    async def storage(self, name: str, *, cached: bool = True) -> AsyncIterator[tuple[str, Service]]:
        """A storage process on the one database of all of them, and its address."""
        address = f"{LOOPBACK}:{free_port()}"
        settings = {
            "ASKBACK_STORAGE_ADDRESS": address,
            "ASKBACK_DATABASE_URL": self._servers.database_url,
            "ASKBACK_REDIS_URL": self._servers.redis_url if cached else "none",
            **({} if cached else {"ASKBACK_CACHE_MIB": "0"}),
            "ASKBACK_DATABASE_POOL_SIZE": str(CONNECTIONS),
        }
        async with self._service(name, "services.storage", settings, address) as service:
            yield address, service

    @asynccontextmanager
    async def bare_handler(self, database_url: str) -> AsyncIterator[tuple[str, Service]]:
        address = f"{LOOPBACK}:{free_port()}"
        settings = {bare_server.ADDRESS: address, bare_server.DATABASE_URL: database_url}
        async with self._service("bare", "benchmarks.bare_server", settings, address) as service:
            yield address, service

    @asynccontextmanager
    async def _service(
        self, name: str, module: str, settings: Mapping[str, str], address: str
    ) -> AsyncIterator[Service]:
        async def ready() -> bool:
            return await serves(address)

        inherited = {key: value for key, value in os.environ.items() if not key.startswith("ASKBACK_")}
        command = Command(
            name=name,
            argv=[sys.executable, "-P", "-m", module],
            cwd=self._home.path,
            log=self.logs / f"{name}.log",
            env={**inherited, **settings, "PYTHONPATH": str(CHECKOUT)},
        )
        service = Service(command, ready=ready, ready_within_s=_READY_WITHIN_S, report=self._report)
        await service.start()
        try:
            yield service
        finally:
            await service.stop()


@asynccontextmanager
async def running_stage(home: Home, *, logs: Path, report: Report) -> AsyncIterator[Stage]:
    """`logs` outlive the run: where something ends early, they say why."""
    async with running_servers(home, report=report) as servers:
        yield Stage(home, servers, logs=logs, report=report)


async def _valkey_version(redis_url: str) -> str:
    """As the server itself tells it; it speaks the protocol of Redis."""
    parts = urlsplit(redis_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"AUTH {parts.password}\r\nINFO server\r\n".encode())
        await reader.readline()
        length = int((await reader.readline())[1:])
        told = (await reader.readexactly(length)).decode()
    finally:
        writer.close()
    fields = dict(line.split(":", 1) for line in told.split("\r\n") if ":" in line)
    return fields.get("valkey_version") or fields.get("redis_version", "unknown")
