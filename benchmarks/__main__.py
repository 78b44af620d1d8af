"""Measures this storage beside its own limits and beside others: python -m benchmarks."""

import asyncio
import shutil
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
from rich.console import Console

from benchmarks.clients import Client, SubjectFailed, running_client
from benchmarks.grid import measure_grid
from benchmarks.machine import our_versions, this_machine
from benchmarks.material import TEXT_BYTES, TRACE_BYTES
from benchmarks.options import MEMORY, Options, read_options
from benchmarks.ours import Ours
from benchmarks.peers import peers_python
from benchmarks.report import as_json, show
from benchmarks.results import HISTORY, LISTS, PROCESSES, SPREAD, Results
from benchmarks.servers import Stage, running_stage
from benchmarks.subjects.base import CONNECTIONS, Where
from benchmarks.subjects.registry import BARE, OURS, REGISTRY, UNCACHED
from services.local.errors import LocalError
from services.local.home import held_home

# Narrower, the tables would be cut.
_NARROWEST = 160

_progress = Console(stderr=True, highlight=False, style="dim")
_began = time.monotonic()


def _tell(line: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _began), 60)
    _progress.print(f"{minutes:2}:{seconds:02} {line}", markup=False, soft_wrap=True)


async def run(options: Options, results: Results) -> int:
    """Adds what it finds to the results as it goes."""
    data = options.folder / "data"
    try:
        with held_home(options.folder) as kept:
            _empty(data, *kept.logs.glob("*.log"))
            try:
                with held_home(data) as home:
                    async with running_stage(home, logs=kept.logs, report=_tell) as stage:
                        results.versions.update(await stage.versions())
                        await _measure(stage, options, results)
            finally:
                _empty(data)
    except LocalError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _conditions(options: Options) -> dict[str, object]:
    return {
        "connections": CONNECTIONS,
        "fsync": "on",
        "text_bytes": TEXT_BYTES,
        "trace_bytes": TRACE_BYTES,
        "seconds": options.effort.seconds,
        "repeats": options.effort.repeats,
    }


def _empty(folder: Path, *files: Path) -> None:
    """What a run before this one left behind."""
    shutil.rmtree(folder, ignore_errors=True)
    for file in files:
        file.unlink()


async def _measure(stage: Stage, options: Options, results: Results) -> None:
    async with stage.storage("storage") as (address, service):
        assert service.pid is not None
        if options.operations:
            async with AsyncExitStack() as stack:
                clients, servers = await _open_subjects(stack, stage, address, options, results)
                servers[OURS] = service.pid
                await measure_grid(clients, servers, stage, options, results, _tell)
        async with running_client(OURS, Where(address=address), python=Path(sys.executable), logs=stage.logs) as client:
            ours = Ours(stage, client, address, service.pid, options, results, _tell)
            parts = {
                SPREAD: ours.spread,
                HISTORY: ours.history,
                LISTS: ours.lists,
                PROCESSES: ours.processes,
                MEMORY: ours.memory,
            }
            for name, part in parts.items():
                if name in options.only:
                    _tell(f"{name} …")
                    try:
                        await part()
                    except SubjectFailed as error:
                        results.notes.append(f"{name}: not measured: {error}")


async def _open_subjects(
    stack: AsyncExitStack, stage: Stage, address: str, options: Options, results: Results
) -> tuple[dict[str, Client], dict[str, int]]:
    """Each in a process of its own, and the process ids of those servers that were started for it."""
    clients: dict[str, Client] = {}
    servers: dict[str, int] = {}
    for name in options.subjects:
        entry = REGISTRY[name]
        try:
            python = Path(sys.executable)
            if entry.is_peer:
                python = await peers_python(options.folder / "peers", report=_tell)
            if name == OURS:
                where = Where(address=address)
            elif name == UNCACHED:
                uncached, service = await stack.enter_async_context(stage.storage("storage-uncached", cached=False))
                where = Where(address=uncached)
                servers[name] = service.pid or 0
            elif name == BARE:
                database_url = await stage.database(f"bench_{entry.module}")
                bare, service = await stack.enter_async_context(stage.bare_handler(database_url))
                where = Where(address=bare, database_url=database_url)
                servers[name] = service.pid or 0
            else:
                where = Where(database_url=await stage.database(f"bench_{entry.module}"))
            client = await stack.enter_async_context(running_client(name, where, python=python, logs=stage.logs))
        except (SubjectFailed, LocalError, OSError, asyncpg.PostgresError) as error:
            results.notes.append(f"{entry.title}: left out: {error}")
            _tell(results.notes[-1])
            continue
        clients[name] = client
        results.versions.update(client.versions)
    return clients, servers


def main() -> int:
    options = read_options()
    results = Results(machine=this_machine(), conditions=_conditions(options), versions=our_versions())
    try:
        code = asyncio.run(run(options, results))
    except KeyboardInterrupt:
        results.notes.append("The run was cut short.")
        code = 130
    # Whatever was found by then took its time.
    if results.cells or results.memory is not None:
        if options.json is not None:
            options.json.write_text(as_json(results), encoding="utf-8")
        console = Console()
        show(results, Console(width=max(console.width, _NARROWEST)))
    return code


if __name__ == "__main__":
    sys.exit(main())
