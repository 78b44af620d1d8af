"""Which calls are running, so that a server that stops can wait for them, and cut off the rest."""

import asyncio
from typing import Any

from services.runtime.interceptors.call import Call, Proceed


class LiveCalls:
    """grpc's own `stop` returns once the calls have ended for their callers; their handlers may still run."""

    def __init__(self) -> None:
        self.stopping = False
        self._own: dict[asyncio.Task[Any], Call] = {}
        self._plumbing: dict[asyncio.Task[Any], Call] = {}

    async def __call__(self, call: Call, proceed: Proceed) -> Any:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call runs outside any task")
        calls = self._plumbing if call.plumbing else self._own
        calls[task] = call
        try:
            return await proceed()
        finally:
            del calls[task]

    def __len__(self) -> int:
        """How many of the service's own calls are running; health and reflection do not count."""
        return len(self._own)

    async def wait(self) -> None:
        """Until none of the service's own calls is running."""
        while self._own:
            await asyncio.wait(self._own)

    async def wait_for_plumbing(self) -> None:
        while self._plumbing:
            await asyncio.wait(self._plumbing)

    def cut_off(self) -> None:
        """Cancels what runs; each caller is told SHUTTING_DOWN."""
        self._cancel(self._own)

    def cut_off_plumbing(self) -> None:
        self._cancel(self._plumbing)

    @staticmethod
    def _cancel(calls: dict[asyncio.Task[Any], Call]) -> None:
        for task, call in calls.items():
            if not call.cut_off:
                call.cut_off = True
                task.cancel()
