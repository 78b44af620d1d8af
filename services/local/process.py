"""Child processes that are watched: started, waited for, restarted when they die, and stopped in order."""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from services.local import guard
from services.local.accounts import Account
from services.local.errors import LocalError, StartFailed

Report = Callable[[str], None]
"""Takes one line for the person who started the system."""

LOG_LIMIT_BYTES = 8 * 1024 * 1024
LOG_CHECK_S = 10.0
LOG_TAIL_LINES = 12
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0
SETTLED_AFTER_S = 30.0

# PR_SET_PDEATHSIG is Linux alone, and called through ctypes; elsewhere the guard stays beside the server.
KERNEL_GUARDS = sys.platform == "linux" and importlib.util.find_spec("_ctypes") is not None


@dataclass(frozen=True, kw_only=True)
class Command:
    """One program and all that it is started with."""

    name: str
    argv: Sequence[str | Path]
    cwd: Path
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    """Whom it runs as; None: as ourselves."""
    stdin: bytes = b""
    stops: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0),)
    """Signals that ask it to stop, gentlest first, each with the seconds that it is given; then comes SIGKILL."""
    guarded_by_kernel: bool = KERNEL_GUARDS


class GuardedProcess:
    """A running command that dies with this process, however this process dies."""

    def __init__(self, command: Command, process: asyncio.subprocess.Process, watch: int | None):
        self._command = command
        self._process = process
        self._watch = watch

    @classmethod
    async def start(cls, command: Command) -> "GuardedProcess":
        signal_number, seconds = command.stops[0]
        watched, watch = (None, None) if command.guarded_by_kernel else os.pipe()
        order = {
            "cwd": str(command.cwd),
            "uid": None if command.account is None else command.account.uid,
            "gid": None if command.account is None else command.account.gid,
            "parent": os.getpid(),
            "watch": watched,
            "stop": int(signal_number),
            "stop_within_s": seconds,
        }
        try:
            with _stdin_file(command) as stdin, _log_file(command.log) as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", guard.__file__, json.dumps(order), *map(str, command.argv)),
                    stdin=stdin,
                    stdout=log,
                    stderr=log,
                    env=dict(command.env),
                    pass_fds=() if watched is None else (watched,),
                    # A Ctrl-C in the terminal is for the parent alone, which then stops its children in order.
                    start_new_session=True,
                )
        except BaseException:
            if watch is not None:
                os.close(watch)
            raise
        finally:
            if watched is not None:
                os.close(watched)
        return cls(command, process, watch)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        code = await self._process.wait()
        self._let_go()
        return code

    async def stop(self) -> None:
        """Asks it to stop, ever more firmly, and returns once it is gone."""
        for number, seconds in self._command.stops:
            if self.exit_code is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)
        await self.kill()

    async def kill(self) -> None:
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                # The group holds the guard too, where that stays beside the server.
                os.killpg(self.pid, signal.SIGKILL)
        await self.wait()

    def _let_go(self) -> None:
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None


async def run_to_end(command: Command, *, within_s: float) -> None:
    """Runs a command that ends by itself; StartFailed if it fails or takes too long."""
    begin = _size(command.log)
    process = await GuardedProcess.start(command)
    try:
        code = await asyncio.wait_for(process.wait(), within_s)
    except TimeoutError:
        raise StartFailed(f"{command.name} took more than {within_s:g} s") from None
    finally:
        await process.stop()
    if code != 0:
        raise StartFailed(f"{command.name} {_ending(code)}:", log_tail=_tail(command.log, begin))


class Service:
    """A command that is kept running: whenever it dies by itself it is started again."""

    def __init__(
        self,
        command: Command,
        *,
        ready: Callable[[], Awaitable[bool]],
        ready_within_s: float,
        report: Report,
        before_start: Callable[[], Awaitable[None]] | None = None,
    ):
        self._command = command
        self._ready = ready
        self._ready_within_s = ready_within_s
        self._report = report
        self._before_start = before_start
        self._process: GuardedProcess | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._command.name

    @property
    def pid(self) -> int | None:
        """The running process's id; None between one life and the next."""
        return None if self._process is None or self._process.exit_code is not None else self._process.pid

    async def start(self) -> None:
        """Returns once it is ready, or raises StartFailed with the end of its log; without effect where it runs."""
        if self._keeping is not None:
            return
        await self._launch()
        self._keeping = asyncio.create_task(self._keep_running(), name=f"keep {self.name} running")

    async def stop(self) -> None:
        """Stops it for good; without effect where it does not run."""
        await self._leave_alone()
        if self._process is not None:
            await self._process.stop()
            self._process = None

    async def kill(self) -> None:
        """Takes it down by SIGKILL, and leaves it down until it is started again."""
        await self._leave_alone()
        if self._process is not None:
            await self._process.kill()
            self._process = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _leave_alone(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
            self._keeping = None

    async def _launch(self) -> None:
        if self._before_start is not None:
            await self._before_start()
        bound_log(self._command.log)
        begin = _size(self._command.log)
        process = await GuardedProcess.start(self._command)
        self._process = process
        try:
            deadline = time.monotonic() + self._ready_within_s
            while not await self._ready():
                if process.exit_code is not None:
                    failed = f"{self.name} {_ending(process.exit_code)} before it was ready:"
                elif time.monotonic() > deadline:
                    failed = f"{self.name} was not ready within {self._ready_within_s:g} s:"
                else:
                    await asyncio.sleep(0.02)
                    continue
                raise StartFailed(failed, log_tail=_tail(self._command.log, begin))
        except BaseException:
            await process.stop()
            self._process = None
            raise

    async def _keep_running(self) -> None:
        delay = FIRST_DELAY_S
        while (process := self._process) is not None:
            started = time.monotonic()
            code = await self._end_of(process)
            if time.monotonic() - started > SETTLED_AFTER_S:
                delay = FIRST_DELAY_S
            self._report(f"{self.name} {_ending(code)}; starting it again")
            told = False
            while True:
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_DELAY_S)
                try:
                    await self._launch()
                except (LocalError, OSError) as error:
                    if not told:
                        self._report(f"{error}\n{self.name} does not come back yet; trying on")
                        told = True
                else:
                    self._report(f"{self.name} is back")
                    break

    async def _end_of(self, process: GuardedProcess) -> int:
        waiting = asyncio.ensure_future(process.wait())
        try:
            while not (await asyncio.wait([waiting], timeout=LOG_CHECK_S))[0]:
                bound_log(self._command.log)
            return waiting.result()
        finally:
            waiting.cancel()


def bound_log(log: Path, *, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """Moves a log that has grown past its limit aside, in the place of the one before; its writer goes on."""
    if _size(log) <= limit_bytes:
        return
    # The writer has the file open for appending, so it is emptied in place.
    with log.open("r+b") as full, _log_file(log.with_suffix(".1.log"), mode="wb") as aside:
        while block := full.read(1024 * 1024):
            aside.write(block)
        full.truncate(0)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _log_file(log: Path, *, mode: str = "ab") -> IO[bytes]:
    return open(log, mode, opener=lambda path, flags: os.open(path, flags, 0o600))


def _stdin_file(command: Command) -> IO[bytes]:
    # A file without a name: nothing is left of it, and its reader may open it anew as /dev/stdin.
    stdin = tempfile.TemporaryFile()
    stdin.write(command.stdin)
    stdin.seek(0)
    if command.account is not None:
        os.fchown(stdin.fileno(), command.account.uid, command.account.gid)
    return stdin


def _tail(log: Path, begin: int) -> str:
    """The last lines that were written since `begin`, a bounded part of them."""
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(begin if begin <= size else 0, size - 16 * 1024))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(f"  {line[:500]}" for line in lines[-LOG_TAIL_LINES:])


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
