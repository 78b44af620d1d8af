"""Whose a log is, how long it is kept, and how it goes."""

from datetime import timedelta

import pytest
from redis.crc import key_slot

from services.storage.store.events import FORGET_AT_ONCE, FORGOTTEN_FOR, LIVE_GRACE, EventLogEnded, RedisEventLog
from tests.integration.event_log.harness import TTL, event, pieces, read_all, sequences, unique
from tests.integration.redis_connection.harness import RedisServer


async def keys(server: RedisServer) -> list[bytes]:
    return [key async for key in server.client.scan_iter() if isinstance(key, bytes)]


async def kept_for(server: RedisServer) -> list[timedelta]:
    return [timedelta(milliseconds=await server.client.pttl(key)) for key in await keys(server)]


async def test_another_user_has_another_log_for_the_same_run(log: RedisEventLog, user: str, run: str) -> None:
    other = unique("user")
    await log.append(user, run, pieces("ab"))
    assert await log.last_sequence(other, run) == 0
    assert await log.reply_text(other, run) == ""
    assert (await read_all(log, other, run)).events == ()
    await log.append(other, run, pieces("x"))
    await log.end(other, run)
    await log.forget(other, [run])
    assert await log.reply_text(user, run) == "ab"
    assert await log.append(user, run, pieces("c", start=3)) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a:b", "c"), ("a", "b:c")),
        (("a}", "b"), ("a", "}b")),
        (("a%3Ab", "c"), ("a:b", "c")),
        (("{", "}"), ("{}", "")),
        (("a", "b"), ("A", "b")),
    ],
)
async def test_no_two_pairs_of_ids_share_a_log(
    log: RedisEventLog, one: tuple[str, str], other: tuple[str, str]
) -> None:
    await log.append(*one, pieces("a"))
    await log.append(*other, pieces("b"))
    assert [await log.reply_text(*one), await log.reply_text(*other)] == ["a", "b"]


@pytest.mark.parametrize("user_id", ["plain", "with:colon", "}{", "{a}", "名前"])
async def test_all_keys_of_a_run_lie_on_one_slot_of_a_cluster(
    redis_server: RedisServer, log: RedisEventLog, user_id: str, run: str
) -> None:
    await log.append(user_id, run, pieces("a"))
    names = await keys(redis_server)
    assert len(names) == 2
    assert len({key_slot(name) for name in names}) == 1


async def test_a_live_log_is_kept_past_the_time_of_an_ended_one(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    assert all(TTL < left <= TTL + LIVE_GRACE for left in await kept_for(redis_server))


async def test_each_append_renews_the_time(redis_server: RedisServer, log: RedisEventLog, user: str, run: str) -> None:
    await log.append(user, run, pieces("ab"))
    for key in await keys(redis_server):
        await redis_server.client.pexpire(key, 60_000)
    await log.append(user, run, pieces("", start=3))
    assert all(left > TTL for left in await kept_for(redis_server))


async def test_after_its_last_event_a_log_is_kept_for_its_time(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    await log.append(user, run, [event(3, last=True)])
    assert all(TTL / 2 < left <= TTL for left in await kept_for(redis_server))


async def test_a_repeat_after_the_end_does_not_keep_a_log_longer(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, [event(1, "a", last=True)])
    for key in await keys(redis_server):
        await redis_server.client.pexpire(key, 60_000)
    await log.append(user, run, [event(1, "a", last=True)])
    await log.end(user, run)
    assert all(left <= timedelta(minutes=1) for left in await kept_for(redis_server))


async def test_a_log_ended_without_its_last_event_is_kept_for_its_time(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    await log.end(user, run)
    assert all(TTL / 2 < left <= TTL for left in await kept_for(redis_server))


async def test_forgotten_runs_leave_no_word_and_others_stay(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    runs = [unique("run") for _ in range(FORGET_AT_ONCE + 5)]
    for each in runs:
        await log.append(user, each, pieces("a"))
    await log.append(user, run, pieces("kept"))
    await log.forget(user, [*runs, "never there"])
    for each in runs:
        assert (await log.reply_text(user, each), await sequences(log, user, each)) == ("", [])
    assert sum(kept <= FORGOTTEN_FOR for kept in await kept_for(redis_server)) == len(runs) + 1
    assert await log.reply_text(user, run) == "kept"


@pytest.mark.parametrize("start", [1, 3])
async def test_nothing_written_late_brings_a_forgotten_run_back(
    log: RedisEventLog, user: str, run: str, start: int
) -> None:
    """Nor by a holder that sends all that it has."""
    await log.append(user, run, pieces("ab"))
    await log.forget(user, [run])
    with pytest.raises(EventLogEnded):
        await log.append(user, run, pieces("c", start=start))
    assert await sequences(log, user, run) == []
    assert await log.reply_text(user, run) == ""
