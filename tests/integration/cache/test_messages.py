"""What is read again is not read from the database again, and is the same to the last byte."""

import random
from dataclasses import asdict

import pytest

from askback.rag.v1 import trace_pb2
from askback.storage.v1 import session_service_pb2
from services.runtime.page_token import PagedQuery
from services.storage.models import MessageType, NewMessage
from services.storage.rpc import encoding
from services.storage.store.cache.shared import messages_key
from services.storage.store.cache.window import WINDOW_MAX_BYTES, WINDOW_MAX_MESSAGES
from services.storage.store.commands import AppendMessages
from services.storage.store.results import LoadedSession, MessagePage
from tests.conformance.conversation import Conversation, said
from tests.integration.cache.harness import PLENTY, Replica, contents, load, messages_in_redis, replica
from tests.integration.redis_connection.harness import RedisServer

TRACE = trace_pb2.RagTrace(query="q", retrieved_chunks=[trace_pb2.RetrievedChunk(filename="a.md", text="evidence")])
TEXT = "👩‍👩‍👧 می‌خواهم क्‍ष e\u0301 é \ufeff\u202e\u2028 \x01\x7f\r\n\t 𝔸 保留 '\"\\%$:name ::"


async def append(conversation: Conversation, *messages: NewMessage) -> None:
    await conversation.store.append_messages(
        AppendMessages(user_id=conversation.user_id, session_id=conversation.session_id, messages=messages)
    )


async def page(
    conversation: Conversation,
    *,
    page_size: int = 100,
    after: int | None = None,
    descending: bool = False,
    include_traces: bool = True,
    max_bytes: int = PLENTY,
) -> MessagePage:
    return await conversation.store.list_messages(
        conversation.user_id,
        conversation.session_id,
        page_size=page_size,
        after=after,
        descending=descending,
        include_traces=include_traces,
        max_bytes=max_bytes,
    )


def plain(result: LoadedSession | MessagePage) -> dict[str, object]:
    kept = {name: value for name, value in asdict(result).items() if name != "messages"}
    return kept | {"messages": list(result.messages)}


async def test_what_was_read_is_answered_without_reading_it_again(here: Replica, conversation: Conversation) -> None:
    await conversation.turn(reply=said("an answer", trace=TRACE.SerializeToString()))
    first = await load(conversation)
    assert here.inner.loads == 1
    again = await load(conversation)
    assert plain(again) == plain(first)
    assert len((await load(conversation, 1, include_traces=False)).messages) == 1
    assert [message.position for message in (await page(conversation)).messages] == [1, 2]
    assert [message.position for message in (await page(conversation, descending=True)).messages] == [2, 1]
    assert here.inner.loads == 1


async def test_a_replica_that_has_not_read_it_takes_it_from_redis(
    here: Replica, elsewhere: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn(TEXT, said(TEXT, trace=TRACE.SerializeToString()))
    first = await load(conversation)
    await messages_in_redis(redis_server, conversation)
    second = await load(elsewhere.sees(conversation))
    assert plain(second) == plain(first)
    assert (elsewhere.inner.loads, elsewhere.store.counters.shared_hits) == (0, 1)


async def test_a_small_session_is_not_looked_for_in_redis(
    cache_database_url: str, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn()
    await load(conversation)
    await messages_in_redis(redis_server, conversation)
    async with replica(cache_database_url, redis_server.url, shared_from_messages=3) as other:
        await load(other.sees(conversation))
        assert (other.inner.loads, other.store.counters.shared_hits) == (1, 0)


async def test_a_turn_keeps_what_is_held_up_to_date(here: Replica, conversation: Conversation) -> None:
    await conversation.turn()
    await load(conversation)
    trace = TRACE.SerializeToString()
    await conversation.turn("another question", said("another answer", trace=trace))
    await append(conversation, NewMessage(type=MessageType.SYSTEM, content="a remark", extra_json='{"a": 1}'))
    held = await load(conversation)
    assert here.inner.loads == 1
    assert plain(held) == plain(await load(Conversation(here.inner, conversation.user_id, conversation.session_id)))


async def test_a_repeated_append_is_no_change(here: Replica, elsewhere: Replica, conversation: Conversation) -> None:
    """Its messages are gone, and others stand in their place: just as many, one change later than what is held."""
    request = AppendMessages(
        user_id=conversation.user_id,
        session_id=conversation.session_id,
        messages=[NewMessage(type=MessageType.HUMAN, content="taken back")],
        request_id="r",
        request_hash=b"h",
    )
    await append(conversation, NewMessage(type=MessageType.HUMAN, content="first"))
    await conversation.store.append_messages(request)
    await conversation.store.delete_messages(conversation.user_id, conversation.session_id, after_position=1)
    assert await contents(conversation) == ["first"]
    await append(elsewhere.sees(conversation), NewMessage(type=MessageType.HUMAN, content="second"))
    await conversation.store.append_messages(request)
    assert await contents(conversation) == ["first", "second"]


async def test_what_another_replica_writes_is_read_at_once(
    here: Replica, elsewhere: Replica, conversation: Conversation
) -> None:
    there = elsewhere.sees(conversation)
    for n in range(5):
        await conversation.turn(f"question {n}")
        assert (await contents(there))[-2:] == [f"question {n}", "Hello to you"]
        await there.turn(f"another {n}")
        assert (await contents(conversation))[-2:] == [f"another {n}", "Hello to you"]


async def test_the_session_beside_the_messages_is_as_it_is_now(here: Replica, conversation: Conversation) -> None:
    """A question that has expired since is no longer its pending one, though nothing was written."""
    task = await conversation.ask_back()
    assert (await load(conversation)).session.pending_hitl_task_id == task.task_id
    here_again = await load(conversation)
    assert here_again.session == await here.inner.get_session(conversation.user_id, conversation.session_id)


@pytest.mark.parametrize("seed", range(5))
async def test_every_read_is_what_the_database_would_have_answered(
    here: Replica, redis_alone: Replica, conversation: Conversation, seed: int
) -> None:
    """Whatever the number, the direction and the bytes asked for; from the process and from Redis alike."""
    chance = random.Random(seed)
    count = chance.choice([0, 1, 7, 150, 230, 420])
    while count > 0:
        some = [_any_message(chance) for _ in range(min(count, 100))]
        await append(conversation, *some)
        count -= len(some)
    if chance.random() < 0.7:
        await conversation.turn()
    else:
        await append(conversation, _any_message(chance))
    truth = Conversation(here.inner, conversation.user_id, conversation.session_id)
    for _ in range(40):
        bounds = {
            "include_traces": chance.random() < 0.6,
            "max_bytes": chance.choice([1, 700, 20_000, 90_000, WINDOW_MAX_BYTES, PLENTY]),
        }
        number = chance.choice([1, 2, 5, 60, WINDOW_MAX_MESSAGES - 1, WINDOW_MAX_MESSAGES, 300])
        place = {
            "page_size": number,
            "after": chance.choice([None, None, chance.randint(-2, 430), 0]),
            "descending": chance.random() < 0.5,
        }
        for read in (conversation, redis_alone.sees(conversation)):
            most = chance.choice([0, number])
            assert plain(await load(read, most, **bounds)) == plain(await load(truth, most, **bounds))  # type: ignore[arg-type]
            assert plain(await page(read, **place, **bounds)) == plain(await page(truth, **place, **bounds))  # type: ignore[arg-type]
    assert here.store.counters.local_hits > 10
    assert redis_alone.store.counters.shared_hits > 10


def _any_message(chance: random.Random) -> NewMessage:
    trace = chance.choice([None, None, b"", TRACE.SerializeToString(), b"no trace \xff", chance.randbytes(3_000)])
    return NewMessage(
        type=chance.choice([MessageType.HUMAN, MessageType.AI]),
        content=chance.choice(["", TEXT, "x" * chance.choice([10, 400, 400, 30_000])]),
        trace=trace,
        extra_json=chance.choice(["", '{"tool": "é"}']),
        run_id=chance.choice(["", "run"]),
    )


async def test_a_reply_reads_the_same_from_the_database_and_from_either_layer(
    here: Replica, redis_alone: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    """Every character of it; a trace that is none any more is left out of each."""
    await conversation.turn(TEXT, said(TEXT, trace=TRACE.SerializeToString(), extra_json='{"a": "é"}'))
    await conversation.turn("", said("bad", trace=b"\xff\xff\xff\xff"))
    await load(conversation)
    await messages_in_redis(redis_server, conversation)
    names = conversation.user_id, conversation.session_id
    query = PagedQuery("ListMessages", names[0], (names[1], False))
    loads, pages = set(), set()
    for store in (here.inner, here.store, redis_alone.store):
        through = Conversation(store, *names)
        loaded = session_service_pb2.LoadSessionResponse.FromString(
            await encoding.loaded_session(await load(through, 3))
        )
        listed = session_service_pb2.ListMessagesResponse.FromString(
            await encoding.message_page(query, await page(through, page_size=3))
        )
        assert [message.content for message in loaded.messages] == [TEXT, "", "bad"]
        assert [message.HasField("rag_trace") for message in loaded.messages] == [True, False, False]
        assert loaded.messages[0].rag_trace == TRACE
        assert listed.next_page_token
        loads.add(loaded.SerializeToString(deterministic=True))
        pages.add(listed.SerializeToString(deterministic=True))
    assert (len(loads), len(pages)) == (1, 1)
    assert here.store.counters.local_hits
    assert redis_alone.store.counters.shared_hits


async def test_a_session_made_anew_shows_no_old_messages(
    here: Replica, elsewhere: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    """Wherever it was kept, and even where it has come to the same revision."""
    await conversation.turn("old")
    assert await contents(elsewhere.sees(conversation)) == ["old", "Hello to you"]
    old = await messages_in_redis(redis_server, conversation)
    await conversation.store.delete_session(conversation.user_id, conversation.session_id)
    await conversation.turn("new")
    await redis_server.client.set(messages_key(conversation.user_id, conversation.session_id), old)
    for each in (here, elsewhere):
        assert await contents(each.sees(conversation)) == ["new", "Hello to you"]


async def test_deleting_a_session_leaves_nothing_of_it_in_either_layer(
    here: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    await conversation.turn()
    await load(conversation)
    await conversation.store.list_sessions(conversation.user_id, page_size=10, after=None, full=True, max_bytes=PLENTY)
    await messages_in_redis(redis_server, conversation)
    await conversation.store.delete_session(conversation.user_id, conversation.session_id)
    assert await redis_server.client.keys("askback:chat_*") == []
    assert here.store.local_bytes == 0


async def test_deleting_a_user_leaves_nothing_of_theirs_in_either_layer(
    here: Replica, conversation: Conversation, redis_server: RedisServer
) -> None:
    for each in (conversation, conversation.another()):
        await each.turn()
        await load(each)
        await messages_in_redis(redis_server, each)
    await conversation.store.delete_user_data(conversation.user_id)
    assert await redis_server.client.keys("askback:chat_*") == []
    assert here.store.local_bytes == 0


async def test_what_is_held_within_the_process_stays_within_its_bound(
    cache_database_url: str, redis_server: RedisServer
) -> None:
    """However many sessions are read."""
    bound = 300_000
    async with replica(cache_database_url, redis_server.url, local_max_bytes=bound) as small:
        first = Conversation(small.store)
        for n in range(12):
            each = first.another()
            await each.turn(reply=said("x" * 50_000))
            await load(each)
            assert 50_000 * min(n + 1, 5) < small.store.local_bytes <= bound
        loads = small.inner.loads
        await load(each)
        assert small.inner.loads == loads
