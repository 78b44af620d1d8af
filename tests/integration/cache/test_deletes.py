"""What is deleted is held in no layer, however its deletion went."""

import asyncio
from typing import Any

import pytest

from services.storage.errors import DatabaseUnavailable, SessionNotFound
from tests.conformance.conversation import Conversation
from tests.integration.cache.harness import Replica, listed, load, messages_in_redis, replica, when
from tests.integration.redis_connection.harness import RedisServer, until, way_to

BUDGET_S = 0.05
"""Redis has as long here as it has in a service."""


async def _held(replica: Replica, conversation: Conversation, server: RedisServer) -> None:
    """In both layers, messages and list."""
    await conversation.turn()
    await load(replica.sees(conversation))
    await listed(replica.sees(conversation), full=True)
    await messages_in_redis(server, conversation)
    await replica.settle()
    assert replica.store.local_bytes


async def _delete(conversation: Conversation, **request: Any) -> int:
    return await conversation.store.delete_session(conversation.user_id, conversation.session_id, **request)


async def _nothing_is_held(replica: Replica, server: RedisServer) -> None:
    async def is_gone() -> bool:
        return not await server.client.keys("askback:chat_*")

    await when(lambda: replica.store.local_bytes == 0)
    await until(is_gone)


async def test_a_deletion_that_is_cut_short_leaves_nothing(
    here: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await _held(here, conversation, redis_server)
    here.inner.deletion_gate = asyncio.Event()
    call = asyncio.create_task(_delete(conversation))
    await when(lambda: here.inner.deleting == 1)
    call.cancel()
    await asyncio.wait([call])
    here.inner.deletion_gate.set()
    await _nothing_is_held(here, redis_server)


@pytest.mark.parametrize("request_id", ["", "d"], ids=["without an id", "with an id"])
async def test_a_repeat_removes_what_a_lost_deletion_has_left(
    here: Replica, conversation: Conversation, redis_server: RedisServer, request_id: str
) -> None:
    """As of a replica that died once it had committed."""
    await _held(here, conversation, redis_server)
    request = {"request_id": request_id, "request_hash": b"1"}
    await _delete(Conversation(here.inner, conversation.user_id, conversation.session_id), **request)
    if request_id:
        assert await _delete(conversation, **request) == 2
    else:
        with pytest.raises(SessionNotFound):
            await _delete(conversation)
    await _nothing_is_held(here, redis_server)


async def test_a_deletion_whose_fate_is_unknown_leaves_nothing(
    here: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await _held(here, conversation, redis_server)
    here.inner.deletion_failure = DatabaseUnavailable()
    with pytest.raises(DatabaseUnavailable):
        await _delete(conversation)
    await _nothing_is_held(here, redis_server)


async def test_a_session_that_came_as_its_users_data_was_to_go_leaves_nothing(
    here: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await _held(here, conversation, redis_server)

    async def come() -> None:
        await _held(here, conversation.another(), redis_server)

    here.inner.before_deleting_user = come
    assert await conversation.store.delete_user_data(conversation.user_id) == 2
    await _nothing_is_held(here, redis_server)


async def test_a_users_many_values_go_within_the_time_that_redis_has(
    cache_database_url: str, redis_server: RedisServer
) -> None:
    """Over a way on which it takes a while to ask for each by itself."""
    async with way_to(redis_server) as way, replica(cache_database_url, way.url, redis_budget_s=BUDGET_S) as far:
        conversations = [Conversation(far.store)]
        conversations += [conversations[0].another() for _ in range(29)]
        for each in conversations:
            await _held(far, each, redis_server)
        assert far.redis is not None
        way.delay_s = 0.002
        failures = far.redis.failure_count
        assert await far.store.delete_user_data(conversations[0].user_id) == 30
        assert far.redis.failure_count == failures
        assert await redis_server.client.keys("askback:chat_*") == []


async def test_what_was_deleted_elsewhere_is_held_for_no_longer_than_its_time(
    cache_database_url: str, conversation: Conversation
) -> None:
    """By a process that nobody asks for anything, too: retention tells no cache."""
    await conversation.turn()
    async with replica(cache_database_url, None, local_kept_s=0.3) as quiet:
        await load(quiet.sees(conversation))
        await listed(quiet.sees(conversation))
        assert quiet.inner.loads == 1
        await quiet.inner.delete_session(conversation.user_id, conversation.session_id)
        await when(lambda: quiet.store.local_bytes == 0)


async def test_a_redis_that_is_silent_keeps_a_deletion_no_longer_than_a_read(
    cache_database_url: str, conversation: Conversation, redis_server: RedisServer
) -> None:
    """It is asked once for the messages and the lists."""
    await conversation.turn()
    async with replica(cache_database_url, redis_server.url, redis_budget_s=BUDGET_S) as here:
        redis_server.freeze()
        assert here.redis is not None
        assert await _delete(here.sees(conversation)) == 2
        assert here.redis.failure_count == 1


async def test_closing_that_is_cut_short_closes_the_store_all_the_same(
    cache_database_url: str, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn()
    async with replica(cache_database_url, redis_server.url) as closing:
        redis_server.freeze()
        await load(closing.sees(conversation))
        await when(lambda: closing.store.storing > 0)
        call = asyncio.create_task(closing.store.close())
        # As far as it comes while Redis is silent.
        for _ in range(20):
            await asyncio.sleep(0)
        assert not call.done()
        call.cancel()
        await asyncio.wait([call])
        with pytest.raises(DatabaseUnavailable):
            await closing.inner.get_session(conversation.user_id, conversation.session_id)
        redis_server.thaw()
