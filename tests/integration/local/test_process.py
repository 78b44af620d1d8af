import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from services.local.errors import StartFailed
from services.local.process import Command, GuardedProcess, Service, bound_log, run_to_end
from tests.integration.local.running import Told, Until

SLEEPS = "import time; open('ready', 'w').close(); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"

MakeCommand = Callable[..., Command]
MakeService = Callable[..., Service]


@pytest.fixture
def command(tmp_path: Path) -> MakeCommand:
    """A Python program in this test's folder."""

    def make(
        program: str,
        *,
        stops: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 20.0),),
        guarded_by_kernel: bool = True,
    ) -> Command:
        return Command(
            name="program",
            argv=[sys.executable, "-c", program],
            cwd=tmp_path,
            log=tmp_path / "program.log",
            stops=stops,
            guarded_by_kernel=guarded_by_kernel,
        )

    return make


@pytest.fixture
def service(command: MakeCommand, tmp_path: Path, told: Told) -> MakeService:
    """A Python program that is ready once there is a file of that name."""

    def make(program: str, *, ready_within_s: float = 20, **options: Any) -> Service:
        async def ready() -> bool:
            return (tmp_path / "ready").exists()

        return Service(command(program, **options), ready=ready, ready_within_s=ready_within_s, report=told)

    return make


def pid_of(running: Service) -> int:
    assert running.pid is not None
    return running.pid


async def test_a_start_that_fails_tells_the_last_lines_of_the_log(service: MakeService) -> None:
    with pytest.raises(StartFailed) as failed:
        await service("print('port 5432', flush=True); raise SystemExit('is taken')").start()
    assert str(failed.value) == "program ended with exit code 1 before it was ready:\n  port 5432\n  is taken"


async def test_a_start_that_fails_tells_nothing_of_an_earlier_one(service: MakeService) -> None:
    with pytest.raises(StartFailed):
        await service("raise SystemExit('the first')").start()
    with pytest.raises(StartFailed) as failed:
        await service("raise SystemExit('the second')").start()
    assert "the first" not in str(failed.value)


async def test_a_start_that_takes_too_long_is_given_up_and_leaves_nothing(service: MakeService, tmp_path: Path) -> None:
    before = psutil.Process().children()
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(StartFailed, match=r"not ready within 0\.5 s"):
        await service(program, ready_within_s=0.5).start()
    assert psutil.Process().children() == before


async def test_a_start_that_is_cancelled_leaves_nothing(service: MakeService, until: Until) -> None:
    before = psutil.Process().children()
    starting = asyncio.create_task(service("import time; time.sleep(600)").start())
    await until(lambda: psutil.Process().children() != before)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert psutil.Process().children() == before


@pytest.mark.parametrize("guarded_by_kernel", [True, False], ids=["kernel", "pipe"])
async def test_a_service_that_dies_is_started_again(
    service: MakeService, until: Until, told: Told, guarded_by_kernel: bool
) -> None:
    running = service(SLEEPS, guarded_by_kernel=guarded_by_kernel)
    await running.start()
    first = pid_of(running)
    os.killpg(first, signal.SIGKILL)
    await until(lambda: told.has("program is back"))
    assert pid_of(running) != first
    assert told.lines == ["program was ended by SIGKILL; starting it again", "program is back"]
    await running.stop()


async def test_a_service_that_does_not_come_back_is_tried_again_and_told_once(
    service: MakeService, until: Until, told: Told, tmp_path: Path
) -> None:
    broken, ready, log = tmp_path / "broken", tmp_path / "ready", tmp_path / "program.log"
    running = service(f"import os, sys; os.path.exists('broken') and sys.exit('is broken'); {SLEEPS}")
    await running.start()
    broken.touch()
    ready.unlink()
    os.kill(pid_of(running), signal.SIGKILL)
    await until(lambda: log.read_text().count("is broken") == 3)
    broken.unlink()
    await until(lambda: told.has("program is back"))
    assert sum("does not come back yet" in line for line in told.lines) == 1
    await running.stop()


async def test_a_killed_service_stays_down_until_it_is_started(service: MakeService, told: Told) -> None:
    running = service(SLEEPS)
    await running.start()
    await running.kill()
    assert running.pid is None
    await running.start()
    assert running.pid is not None
    await running.stop()
    assert told.lines == []


async def test_a_program_deaf_to_its_signal_is_killed(service: MakeService) -> None:
    running = service(DEAF, stops=((signal.SIGTERM, 0.2),))
    await running.start()
    deaf = psutil.Process(pid_of(running))
    await running.stop()
    assert not deaf.is_running()


async def test_stopping_twice_or_without_a_start_does_nothing(service: MakeService) -> None:
    running = service(SLEEPS)
    await running.stop()
    await running.start()
    await running.stop()
    await running.stop()
    assert running.pid is None


async def test_a_program_stopped_through_its_guard_gets_the_signal(
    command: MakeCommand, tmp_path: Path, until: Until
) -> None:
    program = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit('told to stop'));"
        "open('ready', 'w').close(); time.sleep(600)"
    )
    process = await GuardedProcess.start(command(program, guarded_by_kernel=False))
    await until((tmp_path / "ready").exists)
    await process.stop()
    assert process.exit_code == 1
    assert (tmp_path / "program.log").read_text() == "told to stop\n"


@pytest.mark.parametrize("guarded_by_kernel", [True, False], ids=["kernel", "pipe"])
async def test_a_program_dies_with_a_starter_that_is_killed(
    tmp_path: Path, until: Until, guarded_by_kernel: bool
) -> None:
    starter = f"""
import asyncio, sys
from pathlib import Path
from services.local.process import Command, GuardedProcess

async def main():
    here = Path({str(tmp_path)!r})
    command = Command(name="program", argv=[sys.executable, "-c", {SLEEPS!r}], cwd=here, log=here / "log",
                      guarded_by_kernel={guarded_by_kernel})
    await GuardedProcess.start(command)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", starter), env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    )
    await until((tmp_path / "ready").exists)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == (1 if guarded_by_kernel else 2)
    process.kill()
    await process.wait()
    await until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family))


async def test_a_command_that_fails_tells_its_last_lines(command: MakeCommand) -> None:
    with pytest.raises(StartFailed, match=re.escape("program ended with exit code 3:\n  no space")):
        await run_to_end(command("print('no space'); raise SystemExit(3)"), within_s=20)


async def test_a_command_that_takes_too_long_is_ended(command: MakeCommand) -> None:
    before = psutil.Process().children()
    with pytest.raises(StartFailed, match=r"took more than 0\.3 s"):
        await run_to_end(command("import time; time.sleep(600)"), within_s=0.3)
    assert psutil.Process().children() == before


def test_a_log_past_its_limit_is_moved_aside_while_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "program.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 10)
        bound_log(log, limit_bytes=20)
        writer.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "program.1.log").read_bytes() == b"old\n" * 10
    bound_log(log, limit_bytes=20)
    assert log.read_bytes() == b"new\n"
