"""What the health service says: SERVING while the service is ready, NOT_SERVING while it is not, or stops."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as grpc_health

_log = structlog.get_logger()

Ready = Callable[[], Awaitable[bool]]


class Health:
    """The overall status and each service's own are always the same: they stand and fall together."""

    def __init__(self, service_names: Sequence[str]):
        self.servicer = grpc_health.HealthServicer()
        self._names = ("", *service_names)
        self._serving: bool | None = None

    async def set(self, *, serving: bool) -> None:
        if serving == self._serving:
            return
        if self._serving is not None or not serving:
            # A service that begins as SERVING is no change.
            (_log.info if serving else _log.warning)("health", serving=serving)
        self._serving = serving
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._names:
            await self.servicer.set(name, status)

    async def ask(self, ready: Ready, *, limit_s: float) -> None:
        await self.set(serving=await _is_ready(ready, limit_s=limit_s))

    async def follow(self, ready: Ready, *, interval_s: float, limit_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self.ask(ready, limit_s=limit_s)

    async def stop(self) -> None:
        """NOT_SERVING for good."""
        await self.servicer.enter_graceful_shutdown()


async def _is_ready(ready: Ready, *, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            return await ready()
    except Exception as error:
        # Whatever keeps it from answering keeps it from serving.
        _log.debug("readiness_unknown", error=type(error).__name__)
        return False
