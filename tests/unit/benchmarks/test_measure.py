"""How calls are made and counted."""

import asyncio
import math

import pytest

from benchmarks.measure import expect, measure, percentile, told


async def test_every_caller_calls_once_though_the_time_is_over() -> None:
    called: list[int] = []

    async def operate(session: int, call: int) -> None:
        called.append(session)

    sample = await measure(operate, callers=8, sessions=8, seconds=0, most=1)
    assert sorted(called) == list(range(8))
    assert sample.calls == 8


async def test_no_two_callers_are_in_one_session_where_there_are_enough() -> None:
    inside: set[int] = set()

    async def operate(session: int, call: int) -> None:
        assert session not in inside
        inside.add(session)
        await asyncio.sleep(0)
        inside.remove(session)

    sample = await measure(operate, callers=16, sessions=64, seconds=60, most=500)
    assert (sample.failure, sample.failures) == ("", 0)
    assert sample.calls >= 500


async def test_calls_end_at_their_number() -> None:
    async def operate(session: int, call: int) -> None:
        await asyncio.sleep(0)

    sample = await measure(operate, callers=4, sessions=4, seconds=60, most=10)
    assert sample.calls == 10


async def test_a_wrong_answer_is_a_failure_and_no_latency() -> None:
    async def operate(session: int, call: int) -> None:
        expect(session, 0, "messages read")

    sample = await measure(operate, callers=2, sessions=2, seconds=0, most=1)
    assert (sample.calls, sample.failures) == (1, 1)
    assert sample.failure == "WrongAnswer: messages read: 1 instead of 0"


def test_a_failure_is_told_in_one_line() -> None:
    assert told(ExceptionGroup("of a group", [ValueError("one\nline")])) == "ValueError: one line"


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.95, 4), (0.25, 1), (1.0, 4)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], share) == value


def test_a_percentile_of_nothing_is_no_number() -> None:
    assert math.isnan(percentile([], 0.5))
