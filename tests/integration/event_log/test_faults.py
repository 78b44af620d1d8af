"""The log over a Redis that is away, frozen, full, emptied or short of memory."""

import asyncio

import pytest

from services.storage.errors import EventLogUnavailable
from services.storage.store.events import MAX_BYTES, MAX_REPLY_BYTES, EventSlice, NoEventLog, RedisEventLog, RunEventLog
from services.storage.store.redis_connection import RedisConnection
from tests.integration.event_log.harness import TTL, event, pieces, read_all, sequences
from tests.integration.redis_connection.harness import RedisServer


async def test_what_cannot_be_asked_is_told_apart_from_what_is_not_there(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await redis_server.kill()
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, pieces("a"))
    with pytest.raises(EventLogUnavailable):
        await read_all(log, user, run)
    with pytest.raises(EventLogUnavailable):
        await log.reply_text(user, run)
    with pytest.raises(EventLogUnavailable):
        await log.last_sequence(user, run)


async def test_ending_and_forgetting_without_redis_raise_nothing(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await redis_server.kill()
    await log.end(user, run)
    await log.forget(user, [run] * 1_000)


async def test_an_append_that_a_frozen_redis_took_late_is_no_second_one(
    redis_server: RedisServer, connection: RedisConnection, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    redis_server.freeze()
    with pytest.raises(EventLogUnavailable):
        await RedisEventLog(connection, ttl=TTL, budget_s=0.05).append(user, run, pieces("cd", start=3))
    redis_server.thaw()
    assert await log.append(user, run, pieces("cde", start=3)) == 5
    assert await log.reply_text(user, run) == "abcde"
    assert await sequences(log, user, run) == [1, 2, 3, 4, 5]


async def test_a_frozen_redis_costs_a_call_a_quarter_of_a_second(
    redis_server: RedisServer, connection: RedisConnection, user: str, run: str
) -> None:
    log = RedisEventLog(connection, ttl=TTL)
    redis_server.freeze()
    elapsed = []
    for _ in range(3):
        begin = asyncio.get_running_loop().time()
        with pytest.raises(EventLogUnavailable):
            await log.append(user, run, pieces("a"))
        elapsed.append(asyncio.get_running_loop().time() - begin)
    # The quickest: what else the machine does is no part of the rule.
    assert 0.2 < min(elapsed) < 0.3


async def test_of_a_batch_that_a_full_redis_refused_nothing_is_stored(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    await redis_server.fill()
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, pieces("cd", start=3))
    assert await sequences(log, user, run) == [1, 2]
    assert await log.reply_text(user, run) == "ab"
    await redis_server.make_room()
    assert await log.append(user, run, pieces("cd", start=3)) == 4
    assert await log.reply_text(user, run) == "abcd"


async def test_a_redis_that_forgot_the_scripts_is_sent_them_again(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    await redis_server.client.script_flush()
    assert await log.reply_text(user, run) == "ab"
    assert await log.append(user, run, pieces("c", start=3)) == 3


async def test_a_script_is_sent_whole_but_once(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await redis_server.client.script_flush()
    for sequence in range(1, 6):
        await log.append(user, run, [event(sequence)])
    statistics = await redis_server.client.info("commandstats")
    assert statistics["cmdstat_eval"]["calls"] == 1
    assert statistics["cmdstat_evalsha"]["calls"] == 5


async def test_a_run_whose_log_was_emptied_goes_on_without_it(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces("ab"))
    await redis_server.client.flushall()
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, pieces("cd", start=3))
    assert await log.reply_text(user, run) == ""
    assert await log.append(user, run, pieces("abcd")) == 4
    assert await log.reply_text(user, run) == "abcd"


@pytest.mark.parametrize("evicted", ["askback:run_events:*", "askback:run_reply:*"])
async def test_a_log_of_which_a_part_was_evicted_gives_no_reply_with_a_hole(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str, evicted: str
) -> None:
    await log.append(user, run, pieces("ab"))
    await redis_server.client.delete(*await redis_server.client.keys(evicted))
    assert await log.reply_text(user, run) == ""
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, pieces("cd", start=3))
    assert await log.append(user, run, pieces("abcd")) == 4
    assert await log.reply_text(user, run) == "abcd"
    assert await sequences(log, user, run) == [1, 2, 3, 4]


async def test_a_reply_past_its_limit_that_was_evicted_is_missed_too(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, pieces(["x" * (MAX_REPLY_BYTES + 1)]))
    await redis_server.client.delete(*await redis_server.client.keys("askback:run_reply:*"))
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, pieces("y", start=2))


async def test_a_cut_log_whose_reply_was_evicted_is_none_that_a_watcher_is_sent_on_from(
    redis_server: RedisServer, log: RedisEventLog, user: str, run: str
) -> None:
    await log.append(user, run, [event(1, "a"), event(2, "b", payload=b"x" * MAX_BYTES)])
    await redis_server.client.delete(*await redis_server.client.keys("askback:run_reply:*"))
    assert await read_all(log, user, run) == EventSlice(events=(), compacted=None, ended=False)
    assert len((await read_all(log, user, run, after_sequence=1)).events) == 1


async def test_without_redis_no_event_is_taken_and_no_run_is_known(user: str, run: str) -> None:
    log: RunEventLog = NoEventLog()
    with pytest.raises(EventLogUnavailable):
        await log.append(user, run, pieces("a"))
    assert await read_all(log, user, run) == EventSlice(events=(), compacted=None, ended=False)
    assert await log.reply_text(user, run) == ""
    assert await log.last_sequence(user, run) == 0
    await log.end(user, run)
    await log.forget(user, [run])
    await log.close()
