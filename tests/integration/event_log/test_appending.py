"""What the log takes, what it passes over, and what it refuses."""

import asyncio

import pytest

from services.storage.errors import EventLogUnavailable
from services.storage.store.events import EventLogEnded, RedisEventLog
from tests.integration.event_log.harness import event, pieces, read_all, sequences


async def test_events_come_back_as_they_were_appended(log: RedisEventLog, user: str, run: str) -> None:
    events = [
        event(1, payload=bytes(range(256))),
        event(2, "Grüße, 世界 👩‍👩‍👧", payload=b"\r\n$-1\r\n\x00"),
        event(3, payload=b""),
        event(4, " done", last=True),
    ]
    await log.append(user, run, events)
    assert list((await read_all(log, user, run)).events) == events


async def test_an_append_returns_the_last_sequence(log: RedisEventLog, user: str, run: str) -> None:
    assert await log.append(user, run, pieces("ab")) == 2
    assert await log.append(user, run, pieces("c", start=3)) == 3
    assert await log.last_sequence(user, run) == 3


async def test_an_append_of_nothing_changes_nothing(log: RedisEventLog, user: str, run: str) -> None:
    assert await log.append(user, run, []) == 0
    await log.append(user, run, pieces("ab"))
    assert await log.append(user, run, []) == 2


async def test_the_pieces_joined_are_the_reply(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, pieces(["", "Grüße, ", "世", "界"]))
    await log.append(user, run, pieces(["!", ""], start=5))
    assert await log.reply_text(user, run) == "Grüße, 世界!"


async def test_events_that_are_there_already_are_passed_over(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, pieces("abc"))
    assert await log.append(user, run, pieces("xy", start=1)) == 3
    assert await log.append(user, run, pieces("yzde", start=2)) == 5
    assert await log.reply_text(user, run) == "abcde"
    assert await sequences(log, user, run) == [1, 2, 3, 4, 5]


async def test_the_same_events_from_many_at_once_are_stored_once(log: RedisEventLog, user: str, run: str) -> None:
    events = pieces("abcdefgh")
    await asyncio.gather(*(log.append(user, run, events[:count]) for count in range(1, 9) for _ in range(8)))
    assert await log.reply_text(user, run) == "abcdefgh"
    assert await sequences(log, user, run) == list(range(1, 9))


@pytest.mark.parametrize("late", [[3], [4, 5], [2, 4], [3, 2]])
async def test_events_that_would_leave_a_gap_are_refused_whole(
    log: RedisEventLog, user: str, run: str, late: list[int]
) -> None:
    await log.append(user, run, pieces("a"))
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, [event(sequence, "x") for sequence in late])
    assert await sequences(log, user, run) == [1]
    assert await log.reply_text(user, run) == "a"


async def test_events_are_taken_once_those_before_them_are_there(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, pieces("a"))
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, pieces("cd", start=3))
    assert await log.append(user, run, pieces("bcd", start=2)) == 4
    assert await log.reply_text(user, run) == "abcd"


async def test_nothing_comes_after_the_last_event(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, [event(1, "a"), event(2, last=True)])
    with pytest.raises(EventLogEnded):
        await log.append(user, run, [event(3, "b")])
    assert await sequences(log, user, run) == [1, 2]
    assert await log.reply_text(user, run) == "a"


async def test_the_last_event_can_be_repeated(log: RedisEventLog, user: str, run: str) -> None:
    events = [event(1, "a"), event(2, last=True)]
    await log.append(user, run, events)
    assert await log.append(user, run, events) == 2


async def test_a_batch_that_goes_on_after_its_own_last_event_is_refused_whole(
    log: RedisEventLog, user: str, run: str
) -> None:
    with pytest.raises(EventLogEnded):
        await log.append(user, run, [event(1, "a"), event(2, last=True), event(3)])
    assert await sequences(log, user, run) == []
    assert await log.reply_text(user, run) == ""


async def test_a_log_that_was_ended_without_its_last_event_takes_no_more(
    log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    await log.end(user, run)
    with pytest.raises(EventLogEnded):
        await log.append(user, run, pieces("bc", start=2))
    assert await log.append(user, run, pieces("ab")) == 2
    assert await log.reply_text(user, run) == "ab"


async def test_a_log_can_be_ended_before_its_first_event_and_twice(log: RedisEventLog, user: str, run: str) -> None:
    await log.end(user, run)
    await log.end(user, run)
    with pytest.raises(EventLogEnded):
        await log.append(user, run, pieces("a"))
    assert await log.last_sequence(user, run) == 0
    assert await log.reply_text(user, run) == ""


async def test_ending_a_log_that_has_its_last_event_adds_nothing(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, [event(1, last=True)])
    before = await read_all(log, user, run)
    await log.end(user, run)
    assert await read_all(log, user, run) == before
