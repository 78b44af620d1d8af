"""Without Redis, or with one that is ill, reads are right, hardly slower, and use it again once it is well."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.conformance.conversation import Conversation
from tests.integration.cache.harness import (
    Replica,
    contents,
    listed,
    load,
    messages_in_redis,
    replica,
)
from tests.integration.redis_connection.harness import RedisServer, until

BUDGET_S = 0.05
"""Redis has as long here as it has in a service."""

Harm = Callable[[RedisServer], Awaitable[None]]


async def _freeze(server: RedisServer) -> None:
    server.freeze()


async def _heal(server: RedisServer) -> None:
    await server.start()
    server.thaw()


HARMS: dict[str, Harm] = {"frozen": _freeze, "killed": RedisServer.kill}
every_harm = pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)


async def _milliseconds(read: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await read()
    return (time.perf_counter() - began) * 1_000


@pytest.fixture
async def here(cache_database_url: str, redis_server: RedisServer) -> AsyncIterator[Replica]:
    async with replica(cache_database_url, redis_server.url, redis_budget_s=BUDGET_S) as here:
        yield here


@pytest.fixture
async def redis_alone(cache_database_url: str, redis_server: RedisServer) -> AsyncIterator[Replica]:
    async with replica(cache_database_url, redis_server.url, redis_budget_s=BUDGET_S, local_max_bytes=0) as redis_alone:
        yield redis_alone


@every_harm
async def test_reads_succeed_and_soon_cost_no_more_than_without_it(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer, harm: Harm
) -> None:
    """60 ms more at first; once the breaker is open it is not even asked."""
    for n in range(3):
        await conversation.turn(f"question {n}")
    there = redis_alone.sees(conversation)
    await load(there)
    await messages_in_redis(redis_server, conversation)
    without = Conversation(redis_alone.inner, conversation.user_id, conversation.session_id)
    plain = sorted([await _milliseconds(lambda: load(without)) for _ in range(5)])[-1]
    await harm(redis_server)
    assert redis_alone.redis is not None

    slowest = 0.0
    for _ in range(40):
        slowest = max(slowest, await _milliseconds(lambda: load(there)))
        assert len(await contents(there)) == 6
        await there.turn()
        await there.store.delete_messages(there.user_id, there.session_id, after_position=6)
        await redis_alone.settle()
        if redis_alone.redis.is_open:
            break
    assert redis_alone.redis.is_open
    # The machine has others to serve while it is measured.
    assert slowest < plain + 60 + 100

    refused = redis_alone.redis.failure_count
    fastest = min([await _milliseconds(lambda: load(there)) for _ in range(10)])
    assert fastest < plain + 2 + 20
    assert len((await listed(there)).sessions) == 1
    await there.turn()
    assert redis_alone.redis.failure_count - refused <= 2, "only the breaker's own question fails"


@every_harm
async def test_it_is_used_again_within_three_seconds_of_its_return(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer, harm: Harm
) -> None:
    await conversation.turn()
    there = redis_alone.sees(conversation)
    await harm(redis_server)
    assert redis_alone.redis is not None
    while not redis_alone.redis.is_open:
        await there.turn()
        await load(there)
        await redis_alone.settle()
    await _heal(redis_server)

    async def is_hit() -> bool:
        await load(there)
        return redis_alone.store.counters.shared_hits > 0

    await until(is_hit, within_s=3)


async def test_a_full_redis_still_gives_what_it_has_and_costs_no_read_anything(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    """What it does not take is missed, and off every reader's path."""
    await conversation.turn()
    kept = redis_alone.sees(conversation)
    await load(kept)
    await messages_in_redis(redis_server, conversation)
    await redis_server.fill()
    other = kept.another()
    await other.turn("another")
    for _ in range(10):
        assert await contents(other) == ["another", "Hello to you"]
        assert await contents(kept) == ["Hello", "Hello to you"]
        await redis_alone.settle()
    assert redis_alone.store.counters.shared_hits == 10
    await redis_server.make_room()
    await load(other)
    await messages_in_redis(redis_server, other)


async def test_what_is_kept_within_the_process_is_served_while_redis_is_frozen(
    here: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn()
    await load(conversation)
    await here.settle()
    redis_server.freeze()
    assert await contents(conversation) == ["Hello", "Hello to you"]
    assert here.redis is not None
    assert (here.inner.loads, here.redis.failure_count) == (1, 0)


@pytest.mark.parametrize("url", [None, "redis://127.0.0.1:1/0"], ids=["none configured", "never there"])
async def test_a_replica_starts_and_serves_without_any_redis(
    cache_database_url: str, conversation: Conversation, url: str | None
) -> None:
    await conversation.turn()
    async with replica(cache_database_url, url) as alone:
        there = alone.sees(conversation)
        for _ in range(3):
            assert await contents(there) == ["Hello", "Hello to you"]
            assert len((await listed(there)).sessions) == 1
        await there.turn()
        assert len(await contents(there)) == 4
        await there.store.delete_session(there.user_id, there.session_id)


async def test_an_emptied_redis_is_filled_again(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn()
    there = redis_alone.sees(conversation)
    for loads in (1, 2):
        await redis_server.client.flushall()
        await load(there)
        await messages_in_redis(redis_server, conversation)
        await load(there)
        assert (redis_alone.inner.loads, redis_alone.store.counters.shared_hits) == (loads, loads)


async def test_deleting_succeeds_without_redis(
    here: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn()
    await load(conversation)
    await here.settle()
    await redis_server.kill()
    assert await conversation.store.delete_session(conversation.user_id, conversation.session_id) == 2
    await conversation.turn("new")
    assert await contents(conversation) == ["new", "Hello to you"]


async def test_closing_waits_for_what_is_being_stored(
    cache_database_url: str, conversation: Conversation, redis_server: RedisServer
) -> None:
    """And for no longer than Redis is given."""
    await conversation.turn()
    async with replica(cache_database_url, redis_server.url) as closing:
        await load(closing.sees(conversation))
    assert await redis_server.client.keys("askback:chat_messages:*")
    await redis_server.client.flushall()
    redis_server.freeze()
    async with asyncio.timeout(10), replica(cache_database_url, redis_server.url, redis_budget_s=BUDGET_S) as closing:
        await load(closing.sees(conversation))
