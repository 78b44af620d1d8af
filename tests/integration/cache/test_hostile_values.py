"""What is found in Redis is believed in nothing: it may be anyone's, of any time, or nonsense."""

import pytest
from structlog.testing import capture_logs

from services.storage.store.cache.envelope import pack_window, unpack_window
from services.storage.store.cache.shared import messages_key, sessions_key
from services.storage.store.encoded import EncodedMessage
from tests.conformance.conversation import Conversation, said
from tests.integration.cache.harness import (
    Replica,
    contents,
    list_in_redis,
    listed,
    load,
    messages_in_redis,
)
from tests.integration.redis_connection.harness import RedisServer

GARBAGE = {
    "empty": lambda value: b"",
    "something else": lambda value: b"hello",
    "cut short": lambda value: value[:-1],
    "cut to its head": lambda value: value[:12],
    "too long": lambda value: value + b"\0",
    "of another form": lambda value: value[:7] + b"\x02" + value[8:],
    "one bit wrong in its label": lambda value: value[:13] + bytes([value[13] ^ 1]) + value[14:],
    "one bit wrong in a text": lambda value: value[:-3] + bytes([value[-3] ^ 4]) + value[-2:],
    "one bit wrong in its checksum": lambda value: value[:8] + bytes([value[8] ^ 128]) + value[9:],
}
any_garbage = pytest.mark.parametrize("spoil", GARBAGE.values(), ids=GARBAGE)


def warnings(logs: list[dict[str, object]]) -> list[dict[str, object]]:
    return [line for line in logs if line["event"] == "cache_value_dropped"]


@any_garbage
async def test_messages_that_do_not_parse_are_read_from_the_database(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer, spoil: object
) -> None:
    """With one warning, which quotes nothing; what is good takes their place."""
    assert callable(spoil)
    await conversation.turn("a question")
    await load(conversation)
    good = await messages_in_redis(redis_server, conversation)
    key = messages_key(conversation.user_id, conversation.session_id)
    await redis_server.client.set(key, spoil(good))
    with capture_logs() as logs:
        assert await contents(redis_alone.sees(conversation)) == ["a question", "Hello to you"]
    [warning] = warnings(logs)  # type: ignore[arg-type]
    assert warning["of"] == "messages"
    assert conversation.user_id not in str(warning)
    await redis_alone.settle()
    assert await redis_server.client.get(key) == good
    with capture_logs() as logs:
        assert await contents(redis_alone.sees(conversation)) == ["a question", "Hello to you"]
    assert not warnings(logs)  # type: ignore[arg-type]
    assert (redis_alone.inner.loads, redis_alone.store.counters.dropped) == (1, 1)


@any_garbage
async def test_a_list_that_does_not_parse_is_read_from_the_database(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer, spoil: object
) -> None:
    assert callable(spoil)
    await conversation.turn()
    await listed(conversation)
    key = sessions_key(conversation.user_id, full=False)
    await redis_server.client.set(key, spoil(await list_in_redis(redis_server, conversation.user_id)))
    with capture_logs() as logs:
        page = await listed(redis_alone.sees(conversation))
    assert [session.session_id for session in page.sessions] == [conversation.session_id]
    assert [line["of"] for line in warnings(logs)] == ["sessions"]  # type: ignore[arg-type]


async def test_a_value_of_another_type_is_none(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn("a question")
    key = messages_key(conversation.user_id, conversation.session_id)
    await redis_server.client.hset(key, "field", "value")
    with capture_logs() as logs:
        assert await contents(redis_alone.sees(conversation)) == ["a question", "Hello to you"]
    assert len(warnings(logs)) == 1  # type: ignore[arg-type]
    await redis_alone.settle()
    assert await redis_server.client.type(key) == b"string"


@pytest.mark.parametrize("whose", ["another user's", "another session's", "another kind"])
async def test_what_is_not_this_sessions_is_never_served(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer, whose: str
) -> None:
    """Wherever it is put, and although it is at the same revision."""
    await conversation.turn("mine")
    if whose == "another kind":
        await listed(conversation)
        foreign = await list_in_redis(redis_server, conversation.user_id)
    else:
        other = conversation.another() if whose == "another session's" else Conversation(conversation.store)
        await other.turn("not mine")
        await load(other)
        foreign = await messages_in_redis(redis_server, other)
    await redis_server.client.set(messages_key(conversation.user_id, conversation.session_id), foreign)
    with capture_logs() as logs:
        assert await contents(redis_alone.sees(conversation)) == ["mine", "Hello to you"]
    assert len(warnings(logs)) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("whose", ["another user's", "another view"])
async def test_a_list_that_is_not_this_one_is_never_served(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer, whose: str
) -> None:
    await conversation.finish(await conversation.begin(), metadata={"mine": True})
    other = Conversation(conversation.store)
    await other.turn()
    if whose == "another view":
        await listed(conversation, full=True)
        foreign = await list_in_redis(redis_server, conversation.user_id, full=True)
    else:
        await listed(other)
        foreign = await list_in_redis(redis_server, other.user_id)
    await redis_server.client.set(sessions_key(conversation.user_id, full=False), foreign)
    with capture_logs() as logs:
        page = await listed(redis_alone.sees(conversation))
    assert [(session.session_id, session.metadata) for session in page.sessions] == [(conversation.session_id, {})]
    assert len(warnings(logs)) == 1  # type: ignore[arg-type]


async def test_an_older_value_is_a_miss_and_no_cause_for_a_warning(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    """As after a restore."""
    await conversation.turn("first")
    await load(conversation)
    await listed(conversation)
    keys = messages_key(conversation.user_id, conversation.session_id), sessions_key(conversation.user_id, full=False)
    old = [
        await messages_in_redis(redis_server, conversation),
        await list_in_redis(redis_server, conversation.user_id),
    ]
    await conversation.turn("second")
    await conversation.another().turn()
    await redis_server.client.mset(dict(zip(keys, old, strict=True)))
    with capture_logs() as logs:
        there = redis_alone.sees(conversation)
        assert await contents(there) == ["first", "Hello to you", "second", "Hello to you"]
        assert len((await listed(there)).sessions) == 2
    assert not warnings(logs)  # type: ignore[arg-type]


async def test_no_write_derives_from_what_is_cached(
    redis_alone: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    """Even a well-made lie at the right revision reaches no table."""
    await conversation.turn("true")
    await load(conversation)
    window = unpack_window(await messages_in_redis(redis_server, conversation))
    lie = await _said_elsewhere(conversation, redis_server)
    lying = window.holding(window.user_id, window.session_id, window.uid, window.revision, window.message_count, lie)
    await redis_server.client.set(messages_key(window.user_id, window.session_id), pack_window(lying))
    there = redis_alone.sees(conversation)
    assert (await contents(there))[0] == "a lie"
    begun = await there.begin("next", max_context_messages=10)
    assert [message.content for message in begun.context] == ["true", "Hello to you"]
    await there.finish(begun, said("end"))
    assert await contents(there) == ["true", "Hello to you", "next", "end"]


async def _said_elsewhere(conversation: Conversation, redis_server: RedisServer) -> tuple[EncodedMessage, ...]:
    other = Conversation(conversation.store)
    await other.turn("a lie")
    await load(other)
    return unpack_window(await messages_in_redis(redis_server, other)).messages


def test_no_two_pairs_of_ids_share_a_key() -> None:
    """Whatever they hold."""
    ids = ["a", "a:b", "b", ":", "a%3Ab", "%", "a%", "%3A", "full", "a:full", "é", "\u202e", "a/b", "a b", "{a}"]
    keys = [messages_key(user_id, session_id) for user_id in ids for session_id in ids]
    keys += [sessions_key(user_id, full=full) for user_id in ids for full in (False, True)]
    assert len(set(keys)) == len(keys)
    assert messages_key("user", "session") == "askback:chat_messages:user:session"
    assert sessions_key("user", full=False) == "askback:chat_sessions:user"
