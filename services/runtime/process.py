"""How a service process begins and ends: settings, log, signals, exit code."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import structlog

from services.runtime import telemetry
from services.runtime.server import RunningServer, StartupError
from services.runtime.settings import ServiceSettings, SettingsError

if sys.platform == "win32":
    new_event_loop = asyncio.new_event_loop
else:
    from uvloop import new_event_loop

_log = structlog.get_logger()

_STOPPED, _FAILED, _MISCONFIGURED = 0, 1, 2

S = TypeVar("S", bound=ServiceSettings)
OpenService = Callable[[S], AbstractAsyncContextManager[RunningServer]]


def main(open_service: OpenService[S], *, settings: type[S], service: str) -> int:
    """Runs the service until SIGTERM or SIGINT, and returns the exit code.

    The first signal drains, a second waits for no call, a third kills. 0: stopped as asked; 1: failed; 2: a
    setting is wrong. What whoever starts it can mend is one line on stderr, without a traceback.
    """
    try:
        values = settings.read()
    except SettingsError as error:
        _tell(service, *error.lines)
        return _MISCONFIGURED
    as_json = None if values.log_format is None else values.log_format == "json"
    telemetry.configure(level=values.log_level, as_json=as_json)
    structlog.contextvars.bind_contextvars(service=service)
    for name in values.placeholders:
        _log.warning("setting_is_a_placeholder", setting=name)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(open_service, values, service))


async def _serve(open_service: OpenService[S], values: S, service: str) -> int:
    signals = _Signals(asyncio.get_running_loop())
    try:
        async with open_service(values) as running:
            signals.running = running
            _settle_garbage_collection()
            _log.info("serving", address=running.address)
            await signals.stop_asked.wait()
            _log.info("stopping", calls=running.live_calls)
    except StartupError as error:
        _tell(service, str(error))
        return _FAILED
    except asyncio.CancelledError:
        if not signals.stop_asked.is_set():
            raise
    except Exception:
        _log.error("failed", exc_info=True)
        return _FAILED
    _log.info("stopped")
    return _STOPPED


def _settle_garbage_collection() -> None:
    """What the start has made stays, and is not looked through again for each few hundred objects of a call.

    Nearly all that a call makes is freed as its last reference goes: with the defaults, a fifth of the CPU time of
    an append went into looking for cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


class _Signals:
    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.stop_asked = asyncio.Event()
        self.running: RunningServer | None = None
        self._loop = loop
        self._task = asyncio.current_task()
        loop.set_exception_handler(_log_unhandled)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def _received(self) -> None:
        again = self.stop_asked.is_set()
        self.stop_asked.set()
        if self.running is None:
            # Still starting: give that up.
            if self._task is not None:
                self._task.cancel()
        elif again:
            self.running.hurry()
        if again:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)


def _log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # asyncio's own handler would write the exception's text, and the values of the task.
    _log.error("unhandled_in_background", message=context.get("message", ""), exc_info=context.get("exception"))


def _tell(service: str, *lines: str) -> None:
    sys.stderr.writelines(f"{service}: {line}\n" for line in lines)
