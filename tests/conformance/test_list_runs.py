"""A session's runs, the newest first."""

import pytest

from services.storage.errors import SessionNotFound
from services.storage.models import MessageType, NewMessage, RunStatus
from services.storage.store.commands import AppendMessages
from services.storage.store.results import RunCursor
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import NO_PATIENCE, Conversation, new_name


async def _pages(conversation: Conversation, *, page_size: int) -> list[list[str]]:
    pages: list[list[str]] = []
    after: RunCursor | None = None
    while True:
        page = await conversation.store.list_runs(
            conversation.user_id, conversation.session_id, page_size=page_size, after=after
        )
        pages.append([run.run_id for run in page.runs])
        if page.next is None:
            return pages
        after = page.next


async def test_the_newest_comes_first(conversation: Conversation) -> None:
    """Each as it is by now, those that wait included, and none of another session."""
    finished = await conversation.turn()
    running = await conversation.begin()
    queued = await conversation.enqueue("next", patience=NO_PATIENCE)
    await conversation.another().turn()
    assert await conversation.runs() == [queued.run, running.run, finished.run]
    assert [run.status for run in await conversation.runs()] == [
        RunStatus.QUEUED,
        RunStatus.RUNNING,
        RunStatus.COMPLETED,
    ]


@pytest.mark.parametrize(("page_size", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (10, [5])])
async def test_pages_hold_each_run_once(conversation: Conversation, page_size: int, sizes: list[int]) -> None:
    """The last page says that it is the last."""
    runs = [(await conversation.turn()).run.run_id for _ in range(5)]
    pages = await _pages(conversation, page_size=page_size)
    assert [len(page) for page in pages] == sizes
    assert [run_id for page in pages for run_id in page] == runs[::-1]


async def test_runs_of_one_moment_are_listed_by_their_ids(conversation: Conversation, ageing: Ageing) -> None:
    """None is skipped or repeated where a page ends among them."""
    runs = [(await conversation.turn()).run.run_id for _ in range(5)]
    await ageing.make_simultaneous(conversation.user_id)
    assert await _pages(conversation, page_size=2) == [sorted(runs)[:2], sorted(runs)[2:4], sorted(runs)[4:]]


async def test_a_page_goes_on_where_the_one_before_ended(conversation: Conversation) -> None:
    """Though a run has begun since, and another was ended."""
    runs = [(await conversation.turn()).run.run_id for _ in range(3)]
    first = await conversation.store.list_runs(conversation.user_id, conversation.session_id, page_size=2, after=None)
    await conversation.turn()
    rest = await conversation.store.list_runs(
        conversation.user_id, conversation.session_id, page_size=2, after=first.next
    )
    assert [run.run_id for run in rest.runs] == runs[:1]
    assert rest.next is None


async def test_a_session_without_runs_has_an_empty_list(conversation: Conversation) -> None:
    """It is there all the same."""
    await conversation.store.append_messages(
        AppendMessages(
            user_id=conversation.user_id,
            session_id=conversation.session_id,
            messages=[NewMessage(type=MessageType.HUMAN, content="Hello")],
        )
    )
    assert await conversation.runs() == []


async def test_an_unknown_session_is_not_found(conversation: Conversation) -> None:
    """Nor is another user's."""
    await conversation.turn()
    for user_id, session_id in ((new_name(), conversation.session_id), (conversation.user_id, "nobody's")):
        with pytest.raises(SessionNotFound) as refusal:
            await conversation.store.list_runs(user_id, session_id, page_size=10, after=None)
        assert refusal.value.metadata == {"session_id": session_id}
