"""Every subject at every size and every number of callers: append a turn, load the newest 100, load all."""

import asyncio

from benchmarks.clients import Client, SubjectFailed
from benchmarks.compare import Arm, Tell, compare
from benchmarks.material import SessionSet
from benchmarks.options import Options
from benchmarks.results import GRID, Results
from benchmarks.servers import Stage
from benchmarks.subjects.registry import REGISTRY, UNCACHED


def sessions_of(messages: int) -> SessionSet:
    """Fewer of the long ones, so that they can be filled in time; callers beyond their number share them."""
    number = 256 if messages <= 20 else 64 if messages <= 200 else 16 if messages <= 2_000 else 4
    return SessionSet(f"of-{messages}", number, messages)


async def measure_grid(
    clients: dict[str, Client], servers: dict[str, int], stage: Stage, options: Options, results: Results, tell: Tell
) -> None:
    """`servers` are the process ids of the subjects that have one. Who cannot be filled is left out from there on."""
    for messages in options.sizes:
        sessions = sessions_of(messages)
        # The uncached one reads what its cached twin was filled with.
        filled = [name for name in clients if name != UNCACHED]
        # Side by side, since nothing is timed yet.
        for name, failure in zip(
            filled, await asyncio.gather(*(_fill(clients[name], sessions) for name in filled)), strict=True
        ):
            if failure:
                results.notes.append(f"{REGISTRY[name].title}: left out, since it could not be filled: {failure}")
                tell(results.notes[-1])
                del clients[name]
        tell(f"filled all with {sessions.sessions} × {sessions.messages} messages")
        await stage.settle()
        for operation in options.operations:
            arms = [
                Arm(
                    part=GRID,
                    subject=name,
                    operation=operation,
                    sessions=sessions,
                    clients=[client],
                    servers=[servers[name]] if name in servers else (),
                )
                for name, client in clients.items()
                if operation in REGISTRY[name].operations
            ]
            if arms:
                results.cells += await compare(arms, callers=options.callers, effort=options.effort, tell=tell)


async def _fill(client: Client, sessions: SessionSet) -> str:
    """Why it failed, if it did."""
    try:
        await client.fill(sessions)
    except SubjectFailed as error:
        return str(error)
    return ""
