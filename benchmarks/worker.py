"""One subject in a process of its own, which does what it is told by lines of JSON: `python -m benchmarks.worker NAME`.

The first line says how the subject is reached; the subject's own environment runs this, so it needs no package
but the subject's. Addresses come by standard input, since a command line can be read by everybody.
"""

import asyncio
import gc
import json
import os
import sys
import time
from dataclasses import asdict
from typing import IO, Any

from benchmarks.material import SessionSet
from benchmarks.measure import Operate, measure, told
from benchmarks.subjects.base import APPEND, LIST, NEWEST, WHOLE, ListsSessions, Subject, Where
from benchmarks.subjects.registry import opener

if sys.platform == "win32":
    new_event_loop = asyncio.new_event_loop
else:
    from uvloop import new_event_loop


async def work(name: str, answers: IO[str]) -> None:
    async with opener(name)(Where(**await _next_order())) as subject:
        # What was imported and built is no garbage, and looking through it is nobody's cost.
        gc.collect()
        gc.freeze()
        _answer(answers, {"versions": dict(subject.versions)})
        while (order := await _next_order()) is not None:
            try:
                result = await _carry_out(subject, order)
            except Exception as error:
                result = {"error": told(error)}
            _answer(answers, result)


async def _carry_out(subject: Subject, order: dict[str, Any]) -> dict[str, Any]:
    sessions = SessionSet(**order["set"])
    if order["do"] == "fill":
        begin = time.perf_counter()
        await subject.fill(sessions)
        return {"seconds": time.perf_counter() - begin}
    sample = await measure(
        _operation(subject, order["operation"], sessions),
        callers=order["callers"],
        sessions=sessions.sessions,
        seconds=order["seconds"],
        most=order["most"],
        first=order["first"],
    )
    return {"sample": asdict(sample)}


def _operation(subject: Subject, operation: str, sessions: SessionSet) -> Operate:
    async def append(session: int, call: int) -> None:
        await subject.append(sessions, session, call)

    async def newest(session: int, call: int) -> None:
        await subject.newest(sessions, session)

    async def whole(session: int, call: int) -> None:
        await subject.whole(sessions, session)

    async def list_sessions(session: int, call: int) -> None:
        assert isinstance(subject, ListsSessions)
        await subject.list_sessions(sessions, session)

    return {APPEND: append, NEWEST: newest, WHOLE: whole, LIST: list_sessions}[operation]


async def _next_order() -> Any:
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else None


def _answer(answers: IO[str], result: dict[str, Any]) -> None:
    answers.write(json.dumps(result) + "\n")
    answers.flush()


def main() -> int:
    # What a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work(sys.argv[1], answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
