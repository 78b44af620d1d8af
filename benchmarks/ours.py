"""What is measured of ours alone: two sides of itself against each other."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.clients import Client, running_client
from benchmarks.compare import Arm, Tell, compare
from benchmarks.machine import memory_mib
from benchmarks.material import SessionSet
from benchmarks.options import Options
from benchmarks.ratios import MANY, MANY_USERS, ONE_PROCESS, ONE_USER, TWO_PROCESSES
from benchmarks.results import HISTORY, LISTS, PROCESSES, SPREAD, Memory, Results
from benchmarks.servers import Stage
from benchmarks.subjects.base import APPEND, LIST, NEWEST, Where
from benchmarks.subjects.registry import OURS

SHORT, LONG = 10, 10_000
FEW_SESSIONS = 100
READ_MESSAGES = 100
_READERS = 16
_SETTLED_AFTER_S = 2.0
_READ_WITHIN_S = 600.0


class Ours:
    """`client` calls the storage process `server` at `address`."""

    def __init__(
        self, stage: Stage, client: Client, address: str, server: int, options: Options, results: Results, tell: Tell
    ):
        self._stage = stage
        self._client = client
        self._address = address
        self._server = server
        self._options = options
        self._results = results
        self._tell = tell

    async def spread(self) -> None:
        """Many callers on the sessions of one user, beside as many users'."""
        sides = {
            MANY_USERS: SessionSet("spread", MANY, READ_MESSAGES),
            ONE_USER: SessionSet("crowd", MANY, READ_MESSAGES, one_user=True),
        }
        await self._fill(*sides.values())
        for operation in (NEWEST, APPEND):
            arms = [self._arm(SPREAD, operation, sessions, variant) for variant, sessions in sides.items()]
            await self._compare(arms, callers=[MANY])

    async def history(self) -> None:
        """An append to a long session, beside one to a short one."""
        sides = [SessionSet("short", 4, SHORT), SessionSet("long", 4, LONG)]
        await self._fill(*sides)
        await self._compare([self._arm(HISTORY, APPEND, sessions) for sessions in sides], callers=[1])

    async def lists(self) -> None:
        """The first page of a list of many sessions, beside one of few."""
        sides = [
            SessionSet(f"list-{number}", number, 2, one_user=True, traces=False)
            for number in (FEW_SESSIONS, self._options.listed_sessions)
        ]
        await self._fill(*sides)
        await self._compare([self._arm(LISTS, LIST, sessions) for sessions in sides], callers=[1])

    async def processes(self) -> None:
        """Two storage processes with the callers' turns going round, beside one. The callers are two processes too."""
        sessions = SessionSet("processes", MANY, READ_MESSAGES)
        await self._fill(sessions)
        async with AsyncExitStack() as stack:
            address, second = await stack.enter_async_context(self._stage.storage("storage-second"))
            assert second.pid is not None
            sides = {
                ONE_PROCESS: (self._address, [self._server]),
                TWO_PROCESSES: (f"{self._address},{address}", [self._server, second.pid]),
            }
            clients = {
                variant: [
                    await stack.enter_async_context(
                        running_client(OURS, Where(address=where), python=Path(sys.executable), logs=self._stage.logs)
                    )
                    for _ in range(2)
                ]
                for variant, (where, _) in sides.items()
            }
            for operation in (NEWEST, APPEND):
                arms = [
                    Arm(
                        part=PROCESSES,
                        subject=OURS,
                        operation=operation,
                        sessions=sessions,
                        clients=clients[variant],
                        variant=variant,
                        servers=servers,
                    )
                    for variant, (_, servers) in sides.items()
                ]
                await self._compare(arms, callers=[MANY])

    async def memory(self) -> None:
        """A storage process that has just started, and again once many sessions were read through it."""
        sessions = SessionSet("memory", self._options.memory_sessions, READ_MESSAGES)
        await self._fill(sessions)
        async with (
            self._stage.storage("storage-memory") as (address, service),
            running_client(OURS, Where(address=address), python=Path(sys.executable), logs=self._stage.logs) as client,
        ):
            assert service.pid is not None
            await asyncio.sleep(_SETTLED_AFTER_S)
            at_rest = memory_mib(service.pid)
            # Readers at once overtake each other; twice as many calls as sessions leave none out.
            read = await client.measure(
                NEWEST, sessions, callers=_READERS, seconds=_READ_WITHIN_S, most=2 * sessions.sessions
            )
            if read.failures or read.calls < 2 * sessions.sessions:
                self._results.notes.append(f"memory: not measured: {read.failure or 'reading took too long'}")
                return
            await asyncio.sleep(_SETTLED_AFTER_S)
            self._results.memory = Memory(
                at_rest=at_rest,
                after_reading=memory_mib(service.pid),
                sessions=sessions.sessions,
                messages=sessions.messages,
            )

    async def _fill(self, *sets: SessionSet) -> None:
        for sessions in sets:
            seconds = await self._client.fill(sessions)
            self._tell(f"  filled {sessions.name}: {sessions.sessions} × {sessions.messages} in {seconds:.1f} s")
        await self._stage.settle()

    def _arm(self, part: str, operation: str, sessions: SessionSet, variant: str = "") -> Arm:
        return Arm(
            part=part,
            subject=OURS,
            operation=operation,
            sessions=sessions,
            clients=[self._client],
            variant=variant,
            servers=[self._server],
        )

    async def _compare(self, arms: list[Arm], *, callers: list[int]) -> None:
        self._results.cells += await compare(arms, callers=callers, effort=self._options.effort, tell=self._tell)
