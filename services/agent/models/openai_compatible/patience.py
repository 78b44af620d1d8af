"""How long a call may take in all, and how often it is tried."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from services.agent.errors import ModelMalformed, ModelRateLimited, ModelUnavailable
from services.agent.models.openai_compatible.failures import Failure
from services.runtime.errors import TimeLimit

log = structlog.get_logger()

MAX_RETRIES = 2
MAX_REPAIRS = 1

_FIRST_WAIT_S = 0.5
# On top of what the provider asks for: not all who were told the same come back at once.
_SPREAD = 0.1


class Patience:
    """The limits of one call: retries of what may pass by itself, one more try of what was malformed."""

    def __init__(self, what: str, *, limit_s: float) -> None:
        self._what = what
        self._limit_s = limit_s
        self._deadline = asyncio.get_running_loop().time() + limit_s
        self._retries = 0
        self._repairs = 0

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Raises TimeLimit once the call's time is over, counted from when this object was made."""
        try:
            async with asyncio.timeout_at(self._deadline) as timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise TimeLimit(self._what, limit_s=self._limit_s) from None

    async def before_another_try(self, failure: Failure) -> None:
        """Waits as long as it should; raises the failure's error where there is no other try, or no time for it."""
        if isinstance(failure.error, ModelMalformed) and self._repairs < MAX_REPAIRS:
            self._repairs += 1
            return
        may_pass = isinstance(failure.error, ModelRateLimited | ModelUnavailable)
        wait_s = self._wait_s(failure)
        if not may_pass or self._retries >= MAX_RETRIES or wait_s >= self._left_s():
            raise failure.error from None
        self._retries += 1
        log.warning("model_call_tried_again", what=self._what, reason=failure.error.reason, wait_s=round(wait_s, 3))
        await asyncio.sleep(wait_s)

    def _wait_s(self, failure: Failure) -> float:
        if failure.wait_s is None:
            most: float = _FIRST_WAIT_S * 2**self._retries
            return most * random.uniform(0.5, 1)
        return failure.wait_s * random.uniform(1, 1 + _SPREAD)

    def _left_s(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()
