"""A user's sessions, the last changed first."""

import pytest

from services.storage.models import Session
from services.storage.store.base import ConversationStorage
from services.storage.store.results import SessionCursor
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import MIB, Conversation, new_name, question


async def _pages(
    store: ConversationStorage, user_id: str, *, page_size: int, full: bool = False, max_bytes: int = MIB
) -> list[list[Session]]:
    pages: list[list[Session]] = []
    after: SessionCursor | None = None
    while True:
        page = await store.list_sessions(user_id, page_size=page_size, after=after, full=full, max_bytes=max_bytes)
        pages.append(list(page.sessions))
        after = page.next
        if after is None:
            return pages


async def _sessions(conversation: Conversation, count: int) -> list[Conversation]:
    made = [conversation.another() for _ in range(count)]
    for each in made:
        await each.turn()
    return made


async def test_the_last_changed_comes_first(conversation: Conversation) -> None:
    """A turn brings its session to the front."""
    first, second, third = await _sessions(conversation, 3)
    await first.turn()
    [page] = await _pages(conversation.store, conversation.user_id, page_size=10)
    assert [session.session_id for session in page] == [first.session_id, third.session_id, second.session_id]


@pytest.mark.parametrize("page_size", [1, 2, 3, 5, 100])
async def test_pages_hold_every_session_once_in_order(conversation: Conversation, page_size: int) -> None:
    """Full but for the last, and none empty; the ids alone come in the same order and pages."""
    made = await _sessions(conversation, 5)
    expected = [each.session_id for each in reversed(made)]
    pages = await _pages(conversation.store, conversation.user_id, page_size=page_size)
    assert [session.session_id for page in pages for session in page] == expected
    assert all(len(page) == page_size for page in pages[:-1]) and pages[-1]

    after: SessionCursor | None = None
    for page in pages:
        ids = await conversation.store.list_session_ids(conversation.user_id, page_size=page_size, after=after)
        assert list(ids.session_ids) == [session.session_id for session in page]
        after = ids.next
    assert after is None


@pytest.mark.parametrize("page_size", [1, 2, 4])
async def test_sessions_changed_at_one_moment_come_by_id(
    conversation: Conversation, ageing: Ageing, page_size: int
) -> None:
    """Each once, wherever a page ends."""
    made = await _sessions(conversation, 5)
    await ageing.make_simultaneous(conversation.user_id)
    pages = await _pages(conversation.store, conversation.user_id, page_size=page_size)
    listed = [session.session_id for page in pages for session in page]
    assert listed == sorted(each.session_id for each in made)


async def test_an_unknown_user_has_no_sessions(store: ConversationStorage) -> None:
    """Which is no error."""
    assert await _pages(store, new_name(), page_size=10) == [[]]
    assert (await store.list_session_ids(new_name(), page_size=10, after=None)).next is None


async def test_a_full_list_shows_each_session_as_it_is(conversation: Conversation) -> None:
    """Just as reading it alone does."""
    await conversation.finish(await conversation.begin(title_if_new="Retention"), metadata={"topic": "retention"})
    await conversation.ask_back()
    [[listed]] = await _pages(conversation.store, conversation.user_id, page_size=10, full=True)
    assert listed == await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert listed.metadata == {"topic": "retention"}


async def test_a_list_leaves_metadata_out_unless_it_is_full(conversation: Conversation) -> None:
    """All else is there."""
    await conversation.finish(await conversation.begin(title_if_new="Retention"), metadata={"topic": "retention"})
    [[listed]] = await _pages(conversation.store, conversation.user_id, page_size=10)
    assert (listed.title, listed.message_count, listed.metadata, listed.note) == ("Retention", 1, {}, "")


async def test_a_list_tells_what_each_session_waits_for(conversation: Conversation) -> None:
    """A question that waits, until its time has come; a run under way."""
    asked, expired, running = (conversation.another() for _ in range(3))
    task = await asked.ask_back()
    await expired.ask_back(question(expire_after=task.create_time - task.create_time))
    begun = await running.begin()
    [page] = await _pages(conversation.store, conversation.user_id, page_size=10)
    assert {s.session_id: (s.pending_hitl_task_id, s.active_run_id) for s in page} == {
        asked.session_id: (task.task_id, ""),
        expired.session_id: ("", ""),
        running.session_id: ("", begun.run.run_id),
    }


async def test_full_pages_are_bounded_by_their_bytes(conversation: Conversation) -> None:
    """With at least one session each; a page without metadata is not cut for it."""
    made = [conversation.another() for _ in range(4)]
    for each in made:
        await each.finish(await each.begin(), metadata={"large": "x" * 20_000})
    pages = await _pages(conversation.store, conversation.user_id, page_size=100, full=True, max_bytes=45_000)
    assert [len(page) for page in pages] == [2, 2]
    assert len(await _pages(conversation.store, conversation.user_id, page_size=100, full=True, max_bytes=1)) == 4
    assert len(await _pages(conversation.store, conversation.user_id, page_size=100, max_bytes=45_000)) == 1


async def test_a_page_goes_on_from_a_session_that_was_deleted(conversation: Conversation) -> None:
    """Its place is known by what it was, not by the session being there."""
    made = await _sessions(conversation, 3)
    store, user_id = conversation.store, conversation.user_id
    first = await store.list_sessions(user_id, page_size=1, after=None, full=False, max_bytes=MIB)
    await store.delete_session(user_id, made[2].session_id)
    second = await store.list_sessions(user_id, page_size=10, after=first.next, full=False, max_bytes=MIB)
    assert [session.session_id for session in second.sessions] == [made[1].session_id, made[0].session_id]
