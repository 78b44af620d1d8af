"""A user's first sessions are listed from what is held, for as long as that is what the list is."""

import asyncio
from datetime import timedelta

import pytest

from askback.storage.v1.session_service_pb2 import ListSessionsResponse
from services.runtime.page_token import PagedQuery
from services.storage.models import MessageType, NewMessage, Session
from services.storage.rpc import encoding
from services.storage.store.base import ConversationStorage
from services.storage.store.commands import AppendMessages, UpdateSession
from services.storage.store.results import SessionCursor, SessionPage
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import Conversation, new_name, question
from tests.integration.cache.harness import PLENTY, Replica, list_in_redis, listed, when
from tests.integration.redis_connection.harness import RedisServer, until


async def pages(
    store: ConversationStorage, user_id: str, *, full: bool, page_size: int, max_bytes: int = PLENTY
) -> list[tuple[list[Session], SessionCursor | None]]:
    found: list[tuple[list[Session], SessionCursor | None]] = []
    after = None
    while True:
        page = await store.list_sessions(user_id, page_size=page_size, after=after, full=full, max_bytes=max_bytes)
        found.append((list(page.sessions), page.next))
        after = page.next
        if after is None:
            return found


async def say(conversation: Conversation, text: str) -> None:
    await conversation.store.append_messages(
        AppendMessages(
            user_id=conversation.user_id,
            session_id=conversation.session_id,
            messages=[NewMessage(type=MessageType.HUMAN, content=text)],
        )
    )


def titles(page: SessionPage) -> list[str]:
    return [session.title for session in page.sessions]


async def test_what_was_listed_is_answered_without_reading_it_again(here: Replica, conversation: Conversation) -> None:
    await conversation.turn()
    await conversation.another().turn()
    first = await listed(conversation)
    again = await listed(conversation)
    assert list(again.sessions) == list(first.sessions)
    assert [session.session_id for session in (await listed(conversation, page_size=1)).sessions] == [
        first.sessions[0].session_id
    ]
    ids = await conversation.store.list_session_ids(conversation.user_id, page_size=10, after=None)
    assert list(ids.session_ids) == [session.session_id for session in first.sessions]
    assert here.inner.lists == 1


@pytest.mark.parametrize("full", [False, True])
async def test_a_replica_that_has_not_listed_them_takes_them_from_redis(
    elsewhere: Replica, conversation: Conversation, redis_server: RedisServer, full: bool
) -> None:
    await conversation.finish(await conversation.begin(title_if_new="Café 保留"), metadata={"a": [1, {"b": None}]})
    first = await listed(conversation, full=full)
    await list_in_redis(redis_server, conversation.user_id, full=full)
    second = await listed(elsewhere.sees(conversation), full=full)
    assert list(second.sessions) == list(first.sessions)
    assert (elsewhere.inner.lists, elsewhere.store.counters.shared_hits) == (0, 1)


@pytest.mark.parametrize("count", [0, 1, 99, 100])
async def test_every_page_is_what_the_database_would_have_answered(
    here: Replica, redis_alone: Replica, conversation: Conversation, count: int
) -> None:
    """Of any size, in any view, from the process and from Redis alike."""
    for n in range(count):
        await say(conversation.another(), f"message {n}")
    if count:
        await conversation.finish(await conversation.begin(title_if_new="é"), metadata={"n": [count, None]})
    user_id = conversation.user_id
    for full in (False, True):
        for page_size in (1, 30, 100, 101, 1_000):
            expected = await pages(here.inner, user_id, full=full, page_size=page_size)
            for store in (here.store, redis_alone.store):
                assert await pages(store, user_id, full=full, page_size=page_size) == expected
                bounded = await pages(store, user_id, full=full, page_size=page_size, max_bytes=5_000)
                assert bounded == await pages(here.inner, user_id, full=full, page_size=page_size, max_bytes=5_000)
                ids = await store.list_session_ids(user_id, page_size=page_size, after=None)
                assert ids == await here.inner.list_session_ids(user_id, page_size=page_size, after=None)


async def test_a_full_page_is_bounded_by_its_bytes_as_ever(here: Replica, conversation: Conversation) -> None:
    for _ in range(40):
        each = conversation.another()
        await each.finish(await each.begin(), metadata={"large": "x" * 30_000})
    for page_size in (5, 30, 100):
        expected = await pages(here.inner, conversation.user_id, full=True, page_size=page_size)
        for _ in range(2):
            assert await pages(here.store, conversation.user_id, full=True, page_size=page_size) == expected


async def test_every_change_shows_in_the_next_list(
    here: Replica, elsewhere: Replica, conversation: Conversation
) -> None:
    """Whichever replica made it; the note too, which is no change of the session's revision."""
    there = elsewhere.sees(conversation)
    await there.turn()
    names = there.user_id, there.session_id
    for change in (
        UpdateSession(user_id=names[0], session_id=names[1], title="a title"),
        UpdateSession(user_id=names[0], session_id=names[1], note="a note", note_through_position=1),
        UpdateSession(user_id=names[0], session_id=names[1], metadata={"key": "value"}),
    ):
        await listed(conversation)
        await listed(conversation, full=True)
        await there.store.update_session(change)
        now = await here.inner.get_session(*names)
        assert list((await listed(conversation, full=True)).sessions) == [now]
        assert titles(await listed(conversation)) == [now.title]
    begun = await there.begin()
    assert [session.active_run_id for session in (await listed(conversation)).sessions] == [begun.run.run_id]
    await there.another().turn()
    assert len((await listed(conversation)).sessions) == 2
    await there.store.delete_session(*names)
    assert len((await listed(conversation)).sessions) == 1


async def test_a_question_is_pending_in_a_held_list_until_its_time_and_no_longer(
    here: Replica, redis_alone: Replica, conversation: Conversation
) -> None:
    """By the database's clock, and without anything being written."""
    short, long = conversation.another(), conversation.another()
    later = await long.ask_back()
    sooner = await short.ask_back(question(expire_after=timedelta(milliseconds=700)))

    async def pending(store: ConversationStorage) -> set[str]:
        page = await listed(Conversation(store, conversation.user_id))
        return {session.pending_hitl_task_id for session in page.sessions}

    assert await pending(here.store) == await pending(redis_alone.store) == {sooner.task_id, later.task_id}

    async def is_over() -> bool:
        return await pending(here.inner) == {"", later.task_id}

    await until(is_over)
    assert await pending(here.store) == await pending(redis_alone.store) == {"", later.task_id}


async def test_a_user_who_is_deleted_and_comes_again_is_listed_anew(
    here: Replica, elsewhere: Replica, conversation: Conversation
) -> None:
    await conversation.turn()
    for each in (here, elsewhere):
        assert len((await listed(each.sees(conversation))).sessions) == 1
    await conversation.store.delete_user_data(conversation.user_id)
    for each in (here, elsewhere):
        assert len((await listed(each.sees(conversation))).sessions) == 0
    await conversation.another().turn()
    await conversation.another().turn()
    for each in (here, elsewhere):
        assert len((await listed(each.sees(conversation))).sessions) == 2


async def test_a_list_read_before_a_user_came_to_be_is_not_kept_for_after(
    here: Replica, conversation: Conversation
) -> None:
    """Between asking what an unknown user's list is at, and reading it, that user may come and go."""
    assert (await listed(conversation)).sessions == ()
    assert here.store.local_bytes == 0


async def test_many_who_list_at_once_read_it_once(here: Replica, conversation: Conversation) -> None:
    await conversation.turn()
    here.inner.close_gate()
    readers = [asyncio.create_task(listed(conversation)) for _ in range(50)]
    await when(lambda: here.inner.lists == 1)
    late = asyncio.create_task(listed(conversation))
    here.inner.open_gate()
    assert [len((await reader).sessions) for reader in (*readers, late)] == [1] * 51
    assert here.inner.lists == 1


@pytest.mark.parametrize("full", [False, True])
async def test_a_reply_lists_the_same_from_the_database_and_from_either_layer(
    here: Replica, redis_alone: Replica, conversation: Conversation, redis_server: RedisServer, full: bool
) -> None:
    for n in range(3):
        each = conversation.another()
        await each.finish(await each.begin(title_if_new=f"e\u0301 {n}"), metadata={"a": {"b": [1.5, None, "é"]}})
    await listed(conversation, full=full)
    await list_in_redis(redis_server, conversation.user_id, full=full)
    query = PagedQuery("ListSessions", conversation.user_id)
    replies = {
        ListSessionsResponse.FromString(
            await encoding.session_page(
                query, await listed(Conversation(store, conversation.user_id), full=full, page_size=2)
            )
        ).SerializeToString(deterministic=True)
        for store in (here.inner, here.store, redis_alone.store)
    }
    assert len(replies) == 1
    assert here.store.counters.local_hits or redis_alone.store.counters.shared_hits


async def test_an_unknown_user_has_no_list_that_another_could_get(here: Replica, ageing: Ageing) -> None:
    stranger = Conversation(here.store, user_id=new_name())
    assert list((await listed(stranger)).sessions) == []
    await stranger.turn()
    assert len((await listed(stranger)).sessions) == 1
