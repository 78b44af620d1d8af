"""The processes that call the subjects, as seen by the one that conducts the run."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.material import SessionSet
from benchmarks.measure import Sample
from benchmarks.subjects.base import Where

CHECKOUT = Path(__file__).parents[1]
_LONGEST_LINE = 64 * 1024 * 1024
_END_WITHIN_S = 10.0


class SubjectFailed(Exception):
    """The subject could not do what it was told to; the text says why."""


class Client:
    """One subject's process; it takes one order at a time."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path):
        self.name = name
        self.versions: Mapping[str, str] = {}
        self._process = process
        self._log = log

    async def open(self, where: Where) -> None:
        self.versions = (await self._order(asdict(where)))["versions"]

    async def fill(self, sessions: SessionSet) -> float:
        """How many seconds it took."""
        seconds: float = (await self._order({"do": "fill", "set": asdict(sessions)}))["seconds"]
        return seconds

    async def measure(
        self, operation: str, sessions: SessionSet, *, callers: int, seconds: float, most: int, first: int = 0
    ) -> Sample:
        answer = await self._order(
            {
                "do": "measure",
                "operation": operation,
                "set": asdict(sessions),
                "callers": callers,
                "seconds": seconds,
                "most": most,
                "first": first,
            }
        )
        return Sample(**answer["sample"])

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END_WITHIN_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        except ConnectionError:
            line = b""
        if not line:
            raise SubjectFailed(f"its process ended; see {self._log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SubjectFailed(answer["error"])
        return answer


@asynccontextmanager
async def running_client(name: str, where: Where, *, python: Path, logs: Path) -> AsyncIterator[Client]:
    """A process of the environment that `python` belongs to, with the subject opened."""
    log = logs / f"client-{name}.log"
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(str(python), "-P", "-m", "benchmarks.worker", name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            limit=_LONGEST_LINE,
        )
    client = Client(name, process, log)
    try:
        await client.open(where)
        yield client
    finally:
        await client.close()
