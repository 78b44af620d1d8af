"""Readers and writers at once: one read of the store for all, and nothing served that is older than it may be."""

import asyncio

import pytest

from services.storage.errors import SessionNotFound
from services.storage.store.cache.shared import messages_key
from services.storage.store.commands import UpdateSession
from tests.conformance.conversation import Conversation, said
from tests.integration.cache.harness import Replica, contents, load, messages_in_redis, when
from tests.integration.redis_connection.harness import RedisServer

READERS = 500


@pytest.fixture
async def cold(conversation: Conversation, redis_server: RedisServer) -> Conversation:
    """A session that nothing is held of."""
    for n in range(6):
        await conversation.turn(f"question {n}")
    return conversation


async def test_many_readers_of_a_cold_session_make_one_read(here: Replica, cold: Conversation) -> None:
    """Whatever of it each asks for; one that comes later makes none."""
    here.inner.close_gate()
    readers = [asyncio.create_task(load(cold, n % 10, include_traces=n % 2 == 0)) for n in range(READERS)]
    await when(lambda: here.store.counters.joined == READERS - 1)
    assert here.inner.gets < 20, "who come at once share a look-up"
    here.inner.open_gate()
    found = await asyncio.gather(*readers)
    assert [len(loaded.messages) for loaded in found] == [n % 10 or 12 for n in range(READERS)]
    await load(cold)
    assert here.inner.loads == 1


@pytest.mark.parametrize("gone", ["the first", "all"])
async def test_a_reader_that_gives_up_ends_the_read_for_nobody(here: Replica, cold: Conversation, gone: str) -> None:
    """Not even where it was the first; where all have, what was read is there for the next."""
    here.inner.close_gate()
    first = asyncio.create_task(contents(cold))
    await when(lambda: here.inner.reading == 1)
    others = [asyncio.create_task(contents(cold)) for _ in range(10)]
    await when(lambda: here.store.counters.joined == 10)
    leaving = [first, *others] if gone == "all" else [first]
    for reader in leaving:
        reader.cancel()
    await asyncio.wait(leaving)
    here.inner.open_gate()
    if gone == "the first":
        assert {len(await reader) for reader in others} == {12}
    await when(lambda: here.inner.reading == 0)
    assert len(await contents(cold)) == 12
    assert here.inner.loads == 1


async def test_a_failed_read_fails_those_who_waited_for_it_and_nobody_after(here: Replica, cold: Conversation) -> None:
    here.inner.close_gate()
    readers = [asyncio.create_task(contents(cold)) for _ in range(3)]
    await when(lambda: here.store.counters.joined == 2 and here.inner.reading == 1)
    here.inner.open_gate(failing=SessionNotFound("s"))
    results = await asyncio.gather(*readers, return_exceptions=True)
    assert {type(result) for result in results} == {SessionNotFound}
    here.inner.open_gate()
    assert len(await contents(cold)) == 12


async def test_a_slow_read_overtaken_by_a_write_is_never_served_after_it(
    here: Replica, elsewhere: Replica, cold: Conversation, redis_server: RedisServer
) -> None:
    """It fills both layers when it ends, with what it had read before."""
    here.inner.close_gate()
    slow = asyncio.create_task(contents(cold))
    await when(lambda: here.inner.reading == 1)
    await elsewhere.sees(cold).turn("the newest")
    here.inner.open_gate()
    assert len(await slow) == 12
    await messages_in_redis(redis_server, cold)
    for replica in (here, elsewhere):
        assert (await contents(replica.sees(cold)))[-2:] == ["the newest", "Hello to you"]


async def test_a_reader_after_a_write_does_not_wait_for_a_read_from_before_it(
    here: Replica, elsewhere: Replica, cold: Conversation
) -> None:
    """Nor is what it was told lost when that one ends at last."""
    here.inner.close_gate()
    slow = asyncio.create_task(contents(cold))
    await when(lambda: here.inner.reading == 1)
    old_gate = here.inner.gate
    await elsewhere.sees(cold).turn("the newest")
    here.inner.pass_by_gate()
    assert len(await contents(cold)) == 14
    assert old_gate is not None
    old_gate.set()
    assert len(await slow) == 12
    assert len(await contents(cold)) == 14
    assert here.inner.loads == 2


async def test_a_note_shows_beside_messages_that_were_being_read_before_it(
    here: Replica, elsewhere: Replica, cold: Conversation
) -> None:
    """It is no change of the revision, by which the read is shared."""
    here.inner.close_gate()
    early = asyncio.create_task(load(cold))
    await when(lambda: here.inner.reading == 1)
    await elsewhere.store.update_session(
        UpdateSession(user_id=cold.user_id, session_id=cold.session_id, note="noted", note_through_position=3)
    )
    late = asyncio.create_task(load(cold))
    await when(lambda: here.store.counters.joined == 1)
    here.inner.open_gate()
    assert ((await early).session.note, (await late).session.note) == ("", "noted")
    assert here.inner.loads == 1


async def test_what_was_being_read_while_its_session_was_deleted_is_not_kept(
    here: Replica, cold: Conversation, redis_server: RedisServer
) -> None:
    here.inner.close_gate()
    slow = asyncio.create_task(contents(cold))
    await when(lambda: here.inner.reading == 1)
    await here.store.delete_session(cold.user_id, cold.session_id)
    here.inner.open_gate()
    assert len(await slow) == 12
    await here.settle()
    assert here.store.local_bytes == 0
    assert not await redis_server.client.exists(messages_key(cold.user_id, cold.session_id))
    with pytest.raises(SessionNotFound):
        await contents(cold)


async def test_reads_are_whole_states_while_two_replicas_write(
    here: Replica, elsewhere: Replica, conversation: Conversation
) -> None:
    """Never older than what was acknowledged before they began, and never a mixture."""
    there = elsewhere.sees(conversation)
    acknowledged = 0
    done = asyncio.Event()

    async def write() -> None:
        nonlocal acknowledged
        for n in range(15):
            await (conversation, there)[n % 2].turn(f"question {n}", said(f"answer {n}"))
            acknowledged = 2 * n + 2
        done.set()

    async def read(through: Conversation) -> None:
        while not done.is_set():
            at_least = acknowledged
            if not at_least:
                await asyncio.sleep(0)
                continue
            loaded = await load(through)
            texts = [message.content for message in loaded.messages]
            assert len(texts) == loaded.session.message_count >= at_least
            assert [message.position for message in loaded.messages] == list(range(1, len(texts) + 1))
            assert texts == [f"{'answer' if n % 2 else 'question'} {n // 2}" for n in range(len(texts))]

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        for through in (conversation, there) * 2:
            group.create_task(read(through))
