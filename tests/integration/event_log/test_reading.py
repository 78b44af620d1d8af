"""What a watcher is given from any sequence on, and how far a log reaches back."""

import pytest

from services.storage.store.events import (
    MAX_BYTES,
    MAX_EVENTS,
    MAX_REPLY_BYTES,
    CompactedEvents,
    EventSlice,
    RedisEventLog,
)
from tests.integration.event_log.harness import event, pieces, read_all, sequences

NOTHING = EventSlice(events=(), compacted=None, ended=False)


async def append_pieces(log: RedisEventLog, user: str, run: str, texts: list[str]) -> None:
    for start in range(0, len(texts), 500):
        await log.append(user, run, pieces(texts[start : start + 500], start=start + 1))


async def test_an_unknown_run_has_nothing(log: RedisEventLog, user: str, run: str) -> None:
    assert await read_all(log, user, run) == NOTHING
    assert await log.reply_text(user, run) == ""
    assert await log.last_sequence(user, run) == 0


async def test_a_read_goes_on_after_a_sequence_and_stops_at_its_limit(log: RedisEventLog, user: str, run: str) -> None:
    events = pieces("abcdef")
    await log.append(user, run, events)
    some = await log.read(user, run, after_sequence=2, limit=3)
    assert some == EventSlice(events=tuple(events[2:5]), compacted=None, ended=False)


async def test_a_read_past_the_newest_event_is_empty(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, pieces("abc"))
    assert await read_all(log, user, run, after_sequence=3) == NOTHING
    assert await read_all(log, user, run, after_sequence=9) == NOTHING


async def test_only_the_slice_that_reaches_the_last_event_says_that_the_log_ended(
    log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, [event(1), event(2), event(3, last=True)])
    ended = [(await log.read(user, run, after_sequence=after, limit=2)).ended for after in range(4)]
    assert ended == [False, True, True, True]


async def test_a_log_ended_without_its_last_event_says_so_and_shows_its_own_events_alone(
    log: RedisEventLog, user: str, run: str
) -> None:
    events = pieces("abc")
    await log.append(user, run, events)
    await log.end(user, run)
    slices = [await log.read(user, run, after_sequence=after, limit=2) for after in range(4)]
    assert [part.ended for part in slices] == [False, True, True, True]
    assert [list(part.events) for part in slices] == [events[0:2], events[1:3], events[2:3], []]


async def test_a_log_ended_before_its_first_event_says_so(log: RedisEventLog, user: str, run: str) -> None:
    await log.end(user, run)
    assert await read_all(log, user, run) == EventSlice(events=(), compacted=None, ended=True)


async def test_past_the_most_events_the_oldest_go_and_the_reply_up_to_there_is_told(
    log: RedisEventLog, user: str, run: str
) -> None:
    texts = [f"{number} " for number in range(1, MAX_EVENTS + 51)]
    await append_pieces(log, user, run, texts)
    slice_ = await log.read(user, run, after_sequence=0, limit=1)
    assert slice_.compacted == CompactedEvents(through_sequence=50, reply_text="".join(texts[:50]))
    assert slice_.events == (event(51, "51 "),)
    assert await sequences(log, user, run) == list(range(51, MAX_EVENTS + 51))
    assert await log.reply_text(user, run) == "".join(texts)


async def test_who_has_seen_what_was_cut_is_told_nothing_of_it(log: RedisEventLog, user: str, run: str) -> None:
    await append_pieces(log, user, run, ["a"] * (MAX_EVENTS + 50))
    for after, compacted in ((49, CompactedEvents(through_sequence=50, reply_text="a" * 50)), (50, None), (51, None)):
        slice_ = await log.read(user, run, after_sequence=after, limit=1)
        assert slice_.compacted == compacted
        assert slice_.events[0].sequence == max(after, 50) + 1


async def test_past_the_most_bytes_the_oldest_go_and_no_more_than_must(log: RedisEventLog, user: str, run: str) -> None:
    size = MAX_BYTES // 20
    for sequence in range(1, 31):
        await log.append(user, run, [event(sequence, f"{sequence} ", payload=b"x" * size)])
    # Beside its payload an event counts its piece of the reply and a little more, so the twentieth is too much.
    assert await sequences(log, user, run) == list(range(12, 31))
    slice_ = await log.read(user, run, after_sequence=3, limit=1)
    assert slice_.compacted == CompactedEvents(through_sequence=11, reply_text="1 2 3 4 5 6 7 8 9 10 11 ")


async def test_the_newest_event_stays_however_large_it_is(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, pieces("abc"))
    await log.append(user, run, [event(4, "d", payload=b"x" * (MAX_BYTES + 1))])
    assert await sequences(log, user, run) == [4]
    await log.append(user, run, pieces("e", start=5))
    assert await sequences(log, user, run) == [5]
    assert await log.reply_text(user, run) == "abcde"


async def test_a_reply_past_its_limit_is_cut_at_a_character(log: RedisEventLog, user: str, run: str) -> None:
    piece = "x" + "界" * (MAX_REPLY_BYTES // 12)
    await log.append(user, run, pieces([piece] * 5))
    kept = await log.reply_text(user, run)
    assert (piece * 5).startswith(kept)
    assert MAX_REPLY_BYTES - 3 < len(kept.encode()) <= MAX_REPLY_BYTES


async def test_nothing_is_added_to_a_reply_that_was_cut(log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, pieces(["x" * (MAX_REPLY_BYTES - 1), "界", "y"]))
    assert await log.append(user, run, pieces(["z", "z"], start=4)) == 5
    assert await log.reply_text(user, run) == "x" * (MAX_REPLY_BYTES - 1)
    assert await sequences(log, user, run) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("size", [MAX_REPLY_BYTES - 1, MAX_REPLY_BYTES, MAX_REPLY_BYTES + 1])
async def test_a_log_goes_on_around_the_limit_of_its_reply(log: RedisEventLog, user: str, run: str, size: int) -> None:
    await log.append(user, run, pieces(["x" * size]))
    assert await log.append(user, run, pieces(["", "y", ""], start=2)) == 4
    assert await log.reply_text(user, run) == ("x" * size + "y")[:MAX_REPLY_BYTES]
