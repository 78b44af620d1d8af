"""A user's questions, oldest first."""

import pytest

from services.storage.models import HitlState, HitlTask, PendingHitlPolicy
from services.storage.store.results import HitlTaskCursor
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import MIB, RUN_OUT, Conversation, question


async def _pages(
    conversation: Conversation,
    *,
    page_size: int = 100,
    session_id: str = "",
    state: HitlState | None = None,
    max_bytes: int = MIB,
) -> list[list[HitlTask]]:
    pages: list[list[HitlTask]] = []
    after: HitlTaskCursor | None = None
    while True:
        page = await conversation.store.list_hitl_tasks(
            conversation.user_id,
            session_id=session_id,
            state=state,
            page_size=page_size,
            after=after,
            max_bytes=max_bytes,
        )
        pages.append(list(page.tasks))
        after = page.next
        if after is None:
            return pages


async def test_questions_of_all_sessions_come_oldest_first(conversation: Conversation) -> None:
    """As each is by now."""
    first = await conversation.ask_back()
    second = await conversation.another().ask_back()
    await conversation.turn("Harbor")
    [tasks] = await _pages(conversation)
    assert [task.task_id for task in tasks] == [first.task_id, second.task_id]
    assert [task.state for task in tasks] == [HitlState.ANSWERED, HitlState.PENDING]


async def test_questions_are_listed_by_session(conversation: Conversation) -> None:
    """An unknown session has none."""
    task = await conversation.ask_back()
    await conversation.another().ask_back()
    assert await _pages(conversation, session_id=conversation.session_id) == [[task]]
    assert await _pages(conversation, session_id="nobody's") == [[]]


async def test_questions_are_listed_by_state(conversation: Conversation) -> None:
    """Each in the state that it is in now, written or not."""
    of = {state: conversation.another() for state in HitlState if state is not HitlState.UNKNOWN}
    tasks = {
        state: await each.ask_back(question(expire_after=RUN_OUT) if state is HitlState.EXPIRED else None)
        for state, each in of.items()
    }
    await of[HitlState.CLAIMED].begin("Harbor")
    await of[HitlState.ANSWERED].turn("Harbor")
    await of[HitlState.CANCELLED].begin("Something else", policy=PendingHitlPolicy.REPLACE)
    for state, task in tasks.items():
        [listed] = await _pages(conversation, state=state)
        assert [(one.task_id, one.state) for one in listed] == [(task.task_id, state)]


@pytest.mark.parametrize("page_size", [1, 2, 5, 100])
@pytest.mark.parametrize("state", [None, HitlState.PENDING])
async def test_pages_hold_every_question_once_in_order(
    conversation: Conversation, page_size: int, state: HitlState | None
) -> None:
    """Full but for the last, and none empty."""
    asked = [await conversation.another().ask_back() for _ in range(5)]
    pages = await _pages(conversation, page_size=page_size, state=state)
    assert [task for page in pages for task in page] == asked
    assert all(len(page) == page_size for page in pages[:-1]) and pages[-1]


@pytest.mark.parametrize("page_size", [1, 2, 4])
async def test_questions_of_one_moment_come_by_id(conversation: Conversation, ageing: Ageing, page_size: int) -> None:
    """Each once, wherever a page ends."""
    asked = [await conversation.another().ask_back() for _ in range(5)]
    await ageing.make_simultaneous(conversation.user_id)
    listed = [task.task_id for page in await _pages(conversation, page_size=page_size) for task in page]
    assert listed == sorted(task.task_id for task in asked)


async def test_pages_are_bounded_by_their_bytes(conversation: Conversation) -> None:
    """With at least one question each."""
    for _ in range(4):
        await conversation.another().ask_back(question("?" * 10_000, resume_state=b"s" * 10_000))
    assert [len(page) for page in await _pages(conversation, max_bytes=45_000)] == [2, 2]
    assert [len(page) for page in await _pages(conversation, max_bytes=1)] == [1, 1, 1, 1]
