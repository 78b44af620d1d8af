"""Ends a call that takes longer than the service allows, whatever deadline its caller set, or none."""

import asyncio
from collections.abc import Mapping
from typing import Any

from services.runtime.errors import TimeLimit
from services.runtime.interceptors.call import Call, Proceed


class TimeLimits:
    """The handler is cancelled, so that its `finally` runs; its caller is told TIME_LIMIT."""

    def __init__(self, *, unary_s: float, stream_s: float, methods_s: Mapping[str, float]):
        self._unary_s = unary_s
        self._stream_s = stream_s
        self._methods_s = dict(methods_s)

    async def __call__(self, call: Call, proceed: Proceed) -> Any:
        if call.plumbing:
            # A health watch lasts as long as whoever watches.
            return await proceed()
        limit_s = self._methods_s.get(call.method, self._stream_s if call.streaming else self._unary_s)
        try:
            async with asyncio.timeout(limit_s) as scope:
                return await proceed()
        except TimeoutError:
            if not scope.expired():
                raise
            raise TimeLimit(call.method.rpartition("/")[2], limit_s=limit_s) from None
