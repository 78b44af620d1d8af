"""The connections of one process: how many there are, which one is next, and how each comes back."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from services.storage.store.postgres.failures import FAILURES, PoolTimeout

# How long a connection may take to come back to rest; past it the connection is cut, which undoes as much.
_SETTLE_S = 1.0
# Whoever answers at all answers this at once.
_PING_S = 1.0


class Driver(asyncpg.Connection):  # type: ignore[misc]
    """Knows since when it has been idle, or at work."""

    __slots__ = ("since",)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.since = time.monotonic()


class Pool:
    """At most `size` connections, opened as they are needed, of one event loop.

    Whoever takes one gives it back, by `give_back` at rest or by `take_back` after a failure; until then it has
    its place. None is handed out within a transaction, or while an earlier statement is still being cancelled.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Driver]],
        *,
        size: int,
        wait_s: float,
        ping_after_idle_s: float,
        close_after_idle_s: float,
    ):
        self._connect = connect
        self._size = size
        self._wait_s = wait_s
        self._ping_after_idle_s = ping_after_idle_s
        self._close_after_idle_s = close_after_idle_s
        self._places = asyncio.Semaphore(size)
        # The last one to come back is the next to go: it is the least likely to have died meanwhile.
        self._idle: list[Driver] = []
        self._at_work: set[Driver] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._closed = False

    async def take(self) -> Driver:
        """Raises PoolTimeout, and whatever the driver raises."""
        # Waiting for a place and opening a connection are two things: only the first means to be overloaded.
        await self._take_place()
        try:
            self._check_open()
            driver = await self._living()
            if self._closed:
                driver.terminate()
            self._check_open()
        except BaseException:
            self._places.release()
            raise
        driver.since = time.monotonic()
        self._at_work.add(driver)
        return driver

    def give_back(self, driver: Driver) -> None:
        self._at_work.discard(driver)
        if not driver.is_closed():
            if self._closed or driver.is_in_transaction():
                driver.terminate()
            else:
                driver.since = time.monotonic()
                self._idle.append(driver)
        self._places.release()

    async def take_back(self, driver: Driver, failure: BaseException) -> None:
        """Rolls back what was begun. A caller that is cancelled does not wait for that, and does not cut it short."""
        if isinstance(failure, TimeoutError):
            # It did not answer in time: nothing more is to be said to it, least of all a ROLLBACK, which would
            # wait as long again.
            driver.terminate()
        if driver.is_closed() or (isinstance(failure, asyncpg.PostgresError) and not driver.is_in_transaction()):
            self.give_back(driver)
            return
        settling = asyncio.create_task(self._settle(driver), name="bring a connection to rest")
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        if isinstance(failure, Exception):
            await asyncio.shield(settling)

    def longest_wait_s(self) -> float:
        """For how long the busiest connection has been at work."""
        if not self._at_work:
            return 0.0
        return time.monotonic() - min(driver.since for driver in self._at_work)

    def cut(self) -> None:
        """Ends every connection, and so every call that waits for one to answer."""
        for driver in [*self._at_work, *self._idle]:
            driver.terminate()
        self._idle.clear()

    def trim(self) -> None:
        """Closes what nobody has needed for long."""
        now = time.monotonic()
        while self._idle and now - self._idle[0].since > self._close_after_idle_s:
            self._idle.pop(0).terminate()

    async def close(self) -> None:
        """Waits a moment for those at work, then cuts them off."""
        if self._closed:
            return
        self._closed = True
        idle, self._idle = self._idle, []
        try:
            async with asyncio.timeout(_SETTLE_S):
                await asyncio.gather(*(driver.close() for driver in idle), return_exceptions=True)
                for _ in range(self._size):
                    await self._places.acquire()
        except TimeoutError:
            pass
        finally:
            for driver in [*idle, *self._at_work]:
                driver.terminate()
            for settling in self._settling:
                settling.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)

    def _check_open(self) -> None:
        if self._closed:
            raise asyncpg.InterfaceError("the pool is closed")

    async def _take_place(self) -> None:
        self._check_open()
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise PoolTimeout from None

    async def _living(self) -> Driver:
        """A connection that lives; a busy one proves that by itself, and a ping on each call would cost a trip."""
        while self._idle:
            driver = self._idle.pop()
            if driver.is_closed():
                continue
            if time.monotonic() - driver.since < self._ping_after_idle_s:
                return driver
            try:
                await driver.execute("SELECT 1", timeout=_PING_S)
            except BaseException as error:
                driver.terminate()
                if isinstance(error, TimeoutError):
                    # The others have lain there for longer still, and would each keep the call as long.
                    self._drop_idle()
                elif not isinstance(error, FAILURES):
                    raise
            else:
                return driver
        return await self._connect()

    def _drop_idle(self) -> None:
        for driver in self._idle:
            driver.terminate()
        self._idle.clear()

    async def _settle(self, driver: Driver) -> None:
        try:
            async with asyncio.timeout(_SETTLE_S):
                if not driver.is_in_transaction():
                    # What was cancelled may have been the BEGIN: this waits for its end, and then it is known.
                    await driver.execute("SELECT 1")
                if driver.is_in_transaction():
                    await driver.execute("ROLLBACK")
        except BaseException:
            # Whatever it is, the connection is of no use any more.
            driver.terminate()
        finally:
            self.give_back(driver)
