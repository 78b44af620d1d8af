"""The background task that lets a store look after itself."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from services.storage.errors import DatabaseUnavailable
from services.storage.store.base import Upkeep
from services.storage.upkeep import running_upkeep

INTERVAL_S = 0.05


class Backlog(Upkeep):
    """So many batches of each kind are left; a failure comes in their stead."""

    def __init__(self, left: Mapping[str, int] | None = None, *, failures: dict[str, Exception] | None = None):
        self.left = Counter(left)
        self.failures = failures or {}
        self.calls: list[str] = []
        self.called = asyncio.Event()

    async def _batch(self, name: str) -> int:
        self.calls.append(name)
        self.called.set()
        if name in self.failures:
            raise self.failures[name]
        if not self.left[name]:
            return 0
        self.left[name] -= 1
        return 10

    async def wait_for(self, name: str, *, times: int = 1) -> None:
        async with asyncio.timeout(10):
            while self.calls.count(name) < times:
                self.called.clear()
                await self.called.wait()

    async def end_expired_runs(self) -> int:
        return await self._batch("end_expired_runs")

    async def drop_lost_places(self) -> int:
        return await self._batch("drop_lost_places")

    async def expire_hitl_tasks(self) -> int:
        return await self._batch("expire_hitl_tasks")

    async def delete_expired_sessions(self) -> int:
        return await self._batch("delete_expired_sessions")

    async def delete_old_runs(self) -> int:
        return await self._batch("delete_old_runs")

    async def forget_requests(self) -> int:
        return await self._batch("forget_requests")


ALL = [
    "end_expired_runs",
    "drop_lost_places",
    "expire_hitl_tasks",
    "delete_expired_sessions",
    "delete_old_runs",
    "forget_requests",
]


@pytest.mark.parametrize("name", ALL)
async def test_every_kind_of_work_is_done(name: str) -> None:
    backlog = Backlog({name: 1})
    async with running_upkeep(backlog, interval_s=INTERVAL_S):
        await backlog.wait_for(name, times=2)
    assert not +backlog.left


async def test_what_has_more_to_do_goes_on_at_once_and_is_told_once() -> None:
    backlog = Backlog({"forget_requests": 5})
    with capture_logs() as logs:
        # It is looked for once in twelve intervals: the rest must follow by itself.
        async with running_upkeep(backlog, interval_s=INTERVAL_S):
            await backlog.wait_for("forget_requests")
            began = asyncio.get_running_loop().time()
            await backlog.wait_for("forget_requests", times=6)
            assert asyncio.get_running_loop().time() - began < 12 * INTERVAL_S
    # Servers of other tests may be at work in this process.
    told = [log["count"] for log in logs if log["event"] == "upkeep_done" and log["chore"] == "forget_requests"]
    assert told == [50]


async def test_a_backlog_holds_up_no_other_kind() -> None:
    backlog = Backlog({"delete_expired_sessions": 1_000_000})
    async with running_upkeep(backlog, interval_s=INTERVAL_S):
        await backlog.wait_for("delete_expired_sessions", times=3)
        before = backlog.calls.count("end_expired_runs")
        await backlog.wait_for("end_expired_runs", times=before + 3)


def _told_of_failures(logs: Sequence[Mapping[str, object]]) -> list[object]:
    return [log["event"] for log in logs if log["event"] in ("upkeep_failed", "upkeep_recovered")]


@pytest.mark.parametrize("failure", [DatabaseUnavailable(), LookupError("a bug")])
async def test_a_failure_is_told_once_and_ends_nothing(failure: Exception) -> None:
    backlog = Backlog(failures=dict.fromkeys(ALL, failure))
    with capture_logs() as logs:
        async with running_upkeep(backlog, interval_s=INTERVAL_S):
            for name in ALL:
                await backlog.wait_for(name, times=2)
            assert _told_of_failures(logs) == ["upkeep_failed"]
            backlog.failures.clear()
            for name in ALL:
                await backlog.wait_for(name, times=backlog.calls.count(name) + 2)
    assert _told_of_failures(logs) == ["upkeep_failed", "upkeep_recovered"]


async def test_one_kind_that_fails_harms_no_other() -> None:
    backlog = Backlog({"expire_hitl_tasks": 3}, failures={"end_expired_runs": LookupError("a bug")})
    async with running_upkeep(backlog, interval_s=INTERVAL_S):
        await backlog.wait_for("expire_hitl_tasks", times=4)
    assert not +backlog.left


class SlowDeletion(Backlog):
    """A deletion that does not come to its end."""

    async def delete_expired_sessions(self) -> int:
        await super().delete_expired_sessions()
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await never


async def test_what_is_due_waits_for_no_deletion() -> None:
    backlog = SlowDeletion()
    async with running_upkeep(backlog, interval_s=INTERVAL_S):
        await backlog.wait_for("delete_expired_sessions")
        before = backlog.calls.count("end_expired_runs")
        await backlog.wait_for("end_expired_runs", times=before + 3)


async def test_nothing_is_done_once_it_was_left() -> None:
    backlog = Backlog()
    async with running_upkeep(backlog, interval_s=INTERVAL_S):
        await backlog.wait_for("end_expired_runs")
    backlog.calls.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4 * INTERVAL_S):
            backlog.called.clear()
            await backlog.called.wait()
    assert not backlog.calls
