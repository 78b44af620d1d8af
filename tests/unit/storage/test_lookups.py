"""A crowd before one key shares its look-ups, and nobody gets one that began before they came."""

import asyncio

import pytest

from services.storage.store.cache.lookups import AT_ONCE, Lookups


class Clock:
    """A look-up that tells what time it was when it began, and ends when it is let."""

    def __init__(self) -> None:
        self.time = 0
        self.begun = 0
        self.may_end = asyncio.Semaphore(0)
        self.failing = False

    async def look(self) -> int:
        self.begun += 1
        seen = self.time
        await self.may_end.acquire()
        if self.failing:
            raise ValueError("failed")
        return seen


async def _let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_crowd_shares_the_next_look_up() -> None:
    """And who comes once that has begun gets the one after it."""
    lookups: Lookups[str, int] = Lookups()
    clock = Clock()
    first = [asyncio.create_task(lookups.ask("key", clock.look)) for _ in range(AT_ONCE)]
    await _let_others_run()
    clock.time = 1
    crowd = [asyncio.create_task(lookups.ask("key", clock.look)) for _ in range(100)]
    await _let_others_run()
    assert clock.begun == AT_ONCE
    clock.may_end.release()
    await _let_others_run()
    assert clock.begun == AT_ONCE + 1
    clock.time = 2
    late = asyncio.create_task(lookups.ask("key", clock.look))
    await _let_others_run()
    for _ in range(AT_ONCE + 1):
        clock.may_end.release()
    assert await asyncio.gather(*first) == [0] * AT_ONCE
    assert await asyncio.gather(*crowd) == [1] * 100
    assert await late == 2
    assert clock.begun == AT_ONCE + 2


async def test_who_gives_up_ends_the_shared_look_up_for_nobody() -> None:
    lookups: Lookups[str, int] = Lookups()
    clock = Clock()
    asked = [asyncio.create_task(lookups.ask("key", clock.look)) for _ in range(AT_ONCE + 3)]
    await _let_others_run()
    asked[0].cancel()
    asked[AT_ONCE].cancel()
    for _ in range(AT_ONCE):
        clock.may_end.release()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [
        n in (0, AT_ONCE) for n in range(AT_ONCE + 3)
    ]


async def test_a_failed_look_up_fails_those_who_shared_it_and_nobody_after() -> None:
    lookups: Lookups[str, int] = Lookups()
    clock = Clock()
    clock.failing = True
    asked = [asyncio.create_task(lookups.ask("key", clock.look)) for _ in range(AT_ONCE + 3)]
    await _let_others_run()
    for _ in range(AT_ONCE + 1):
        clock.may_end.release()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, ValueError) for result in results)
    clock.failing = False
    clock.may_end.release()
    assert await lookups.ask("key", clock.look) == 0


async def test_one_key_does_not_wait_for_another() -> None:
    lookups: Lookups[str, int] = Lookups()
    clock, other = Clock(), Clock()
    held = [asyncio.create_task(lookups.ask("key", clock.look)) for _ in range(AT_ONCE + 1)]
    await _let_others_run()
    other.may_end.release()
    assert await lookups.ask("other", other.look) == 0
    await lookups.close()
    for _ in range(AT_ONCE):
        clock.may_end.release()
    *ended, waiting = await asyncio.gather(*held, return_exceptions=True)
    assert ended == [0] * AT_ONCE
    with pytest.raises(asyncio.CancelledError):
        raise waiting  # type: ignore[misc]
