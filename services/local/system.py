"""The whole system on one machine: PostgreSQL, Valkey, storage and agent, as children of this process."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from askback.client import KnowledgeClient
from services.local.health import serves
from services.local.home import Home, held_home
from services.local.ports import check_addresses, reachable_address, settle_address
from services.local.process import Command, Report, Service
from services.local.servers import Servers, running_servers

CHECKOUT = Path(__file__).parents[2]
READY_WITHIN_S = 90.0
# The first SIGTERM drains, the second waits for no call.
STOPS = ((signal.SIGTERM, 10.0), (signal.SIGTERM, 5.0))


@dataclass(frozen=True)
class System:
    """A running system; its services can be killed and started again at will."""

    home: Home
    servers: Servers
    storage: Service
    agent: Service
    storage_address: str
    agent_address: str

    async def kill_agent(self) -> None:
        """SIGKILL; it stays down until `start_agent`."""
        await self.agent.kill()

    async def start_agent(self) -> None:
        await self.agent.start()

    async def restart_agent(self) -> None:
        await self.agent.restart()

    async def ingest(self, folder: Path, *, collection: str = "") -> int:
        """Ingests every document of the folder, and returns how many there are."""
        documents = await asyncio.to_thread(_documents_in, folder)
        async with KnowledgeClient(reachable_address(self.agent_address)) as knowledge:
            for document in documents:
                await knowledge.ingest_document(content=document, collection=collection)
        return len(documents)


@asynccontextmanager
async def running_system(
    *,
    home: Path,
    report: Report,
    database_url: str | None = None,
    knowledge_url: str | None = None,
    redis_url: str | None = None,
    storage_address: str = "127.0.0.1:0",
    agent_address: str = "127.0.0.1:0",
    environment: Mapping[str, str] | None = None,
    working_folder: Path | None = None,
    durable: bool = True,
    starting: str = "",
) -> AsyncIterator[System]:
    """Holds `home`, starts what has no URL, then the services, and stops all in reverse order.

    Port 0 is a free port. `environment` is what the services are given beside the addresses and URLs: unless
    said otherwise this process's own without any ASKBACK setting. `working_folder` is where they look for a
    .env file: unless said otherwise `home`, where there is none.
    """
    if environment is None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ASKBACK_")}
    async with AsyncExitStack() as stack:
        held = stack.enter_context(held_home(home))
        # Before anything is started: a port that is taken is told at once.
        check_addresses({"ASKBACK_STORAGE_ADDRESS": storage_address, "ASKBACK_AGENT_ADDRESS": agent_address})
        if starting:
            report(starting)
        servers = await stack.enter_async_context(
            running_servers(
                held,
                report=report,
                database_url=database_url,
                knowledge_url=knowledge_url,
                redis_url=redis_url,
                durable=durable,
            )
        )
        storage_address = settle_address("ASKBACK_STORAGE_ADDRESS", storage_address)
        agent_address = settle_address("ASKBACK_AGENT_ADDRESS", agent_address)
        settings = {
            "ASKBACK_HOME": str(held.path),
            "ASKBACK_DATABASE_URL": servers.database_url,
            "ASKBACK_KNOWLEDGE_URL": servers.knowledge_url,
            "ASKBACK_REDIS_URL": servers.redis_url,
            "ASKBACK_STORAGE_ADDRESS": storage_address,
            "ASKBACK_AGENT_ADDRESS": agent_address,
        }
        services = {
            name: _service(
                name,
                home=held,
                address=address,
                environment={**environment, **settings, "PYTHONPATH": _python_path(environment)},
                working_folder=working_folder or held.path,
                report=report,
            )
            for name, address in (("storage", storage_address), ("agent", agent_address))
        }
        for service in services.values():
            stack.push_async_callback(service.stop)
        # Side by side, since most of their start is spent on imports; the agent finds storage when it needs it.
        await _all_of(*(service.start() for service in services.values()))
        yield System(
            home=held,
            servers=servers,
            storage=services["storage"],
            agent=services["agent"],
            storage_address=storage_address,
            agent_address=agent_address,
        )


def _service(
    name: str, *, home: Home, address: str, environment: Mapping[str, str], working_folder: Path, report: Report
) -> Service:
    async def ready() -> bool:
        return await serves(address)

    command = Command(
        name=name,
        # -P: what lies in the working folder is never imported.
        argv=[sys.executable, "-P", "-m", f"services.{name}"],
        cwd=working_folder,
        log=home.logs / f"{name}.log",
        env=environment,
        stops=STOPS,
    )
    return Service(command, ready=ready, ready_within_s=READY_WITHIN_S, report=report)


def _python_path(environment: Mapping[str, str]) -> str:
    given = environment.get("PYTHONPATH")
    return f"{CHECKOUT}{os.pathsep}{given}" if given else str(CHECKOUT)


async def _all_of(*starts: Coroutine[None, None, None]) -> None:
    """Awaits all, or cancels the others at the first failure and raises that one alone."""
    tasks = [asyncio.ensure_future(start) for start in starts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _documents_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
