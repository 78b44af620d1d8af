"""Seeded histories of two storage processes under faults, each one checked whole."""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from uvloop import new_event_loop

from tests.history.checker import OF_THE_RUN, Violation
from tests.history.planted import PLANTED
from tests.history.seed import STORAGE, Verdict, run_seed
from tests.history.servers import World, running_world

TRAFFIC_S = 10.0
VIOLATIONS_TOLD = 3
PLANTED_TRIES = 3


def main() -> int:
    """0: every history held; 1: some did not, or a planted bug was not caught."""
    arguments = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="askback-history-"))
    folder.chmod(0o711)
    passed = False
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            passed = runner.run(_run(arguments, folder))
    finally:
        if passed and not arguments.keep:
            shutil.rmtree(folder)
        else:
            _tell(f"logs are in {folder}")
    return 0 if passed else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many (10)")
    parser.add_argument("--first-seed", type=int, default=1, help="where to begin (1)")
    parser.add_argument("--seconds", type=float, default=TRAFFIC_S, help="of traffic in each seed (10)")
    parser.add_argument("--planted", nargs="*", choices=[*PLANTED], help="plant these bugs (all), one after the other")
    parser.add_argument("--keep", action="store_true", help="keep the servers' logs")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace, folder: Path) -> bool:
    begin = time.monotonic()
    async with running_world(folder) as world:
        if arguments.planted is None:
            passed = await _histories(world, arguments)
        else:
            passed = await _planted(world, arguments)
    _tell(f"{time.monotonic() - begin:.0f} s in all")
    return passed


async def _histories(world: World, arguments: argparse.Namespace) -> bool:
    passed = True
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        verdict = await run_seed(world, seed, traffic_s=arguments.seconds)
        _tell(f"seed {seed}: {'held' if not verdict.violations else 'BROKEN'}: {verdict.summary}")
        if verdict.violations:
            passed = False
            _tell_violations(verdict)
            told = world.folder / f"seed-{seed}.history"
            told.write_text("".join(f"{line}\n" for line in verdict.history.lines()), encoding="utf-8")
            _tell(f"  the history: {told}")
            _tell(f"  again: python -m tests.history --seeds 1 --first-seed {seed} --seconds {arguments.seconds:g}")
    return passed


async def _planted(world: World, arguments: argparse.Namespace) -> bool:
    missed = False
    for name in arguments.planted or PLANTED:
        found = await _caught(world, name, arguments)
        missed = missed or not found
        _tell(f"{name}: {found or f'NOT CAUGHT with {PLANTED_TRIES} seeds'}")
    return not missed


async def _caught(world: World, name: str, arguments: argparse.Namespace) -> str:
    """The first seed that catches the bug, and by what; "" where none does."""
    for seed in range(arguments.first_seed, arguments.first_seed + PLANTED_TRIES):
        module = ("tests.history.planted", name, *STORAGE)
        verdict = await run_seed(world, seed, traffic_s=arguments.seconds, module=module)
        found = [violation for violation in verdict.violations if violation.rule not in OF_THE_RUN]
        if found:
            rules = ", ".join(dict.fromkeys(violation.rule for violation in found))
            return f"caught with seed {seed} by {rules}\n  {found[0]}"
    return ""


def _tell_violations(verdict: Verdict) -> None:
    by_rule: dict[str, list[Violation]] = {}
    for violation in verdict.violations:
        by_rule.setdefault(violation.rule, []).append(violation)
    for broken in by_rule.values():
        for violation in broken[:VIOLATIONS_TOLD]:
            _tell(f"  {violation}")
        if len(broken) > VIOLATIONS_TOLD:
            _tell(f"  and {len(broken) - VIOLATIONS_TOLD} more of {broken[0].rule}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
