"""Title, note, expiry and metadata of a session change without its messages."""

import asyncio
from datetime import UTC, datetime

import pytest

from services.runtime.errors import InvalidField
from services.storage.errors import RevisionMismatch, SessionNotFound
from services.storage.models import METADATA_MAX_BYTES, METADATA_MAX_KEYS
from tests.conformance.conversation import MIB, Conversation, said

SOME_TIME = datetime(2090, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


async def test_only_what_is_set_changes(conversation: Conversation) -> None:
    """All else stays, and the revision grows by one."""
    await conversation.append("one")
    await conversation.update(
        title="A title", sets_expire_time=True, expire_time=SOME_TIME, metadata={"a": 1}, note="a note"
    )
    before = await conversation.session()
    session = await conversation.update(title="Another")
    assert session == await conversation.session()
    assert (session.title, session.revision) == ("Another", before.revision + 1)
    assert (session.note, session.expire_time, session.metadata) == ("a note", SOME_TIME, {"a": 1})
    assert session.update_time > before.update_time
    assert await conversation.contents() == ["one"]


async def test_a_title_that_is_taken_away_falls_back_to_the_sessions_id(conversation: Conversation) -> None:
    """The next first question may give another."""
    await conversation.append("one")
    await conversation.update(title="A title")
    assert (await conversation.update(title="")).title == conversation.session_id
    assert (await conversation.begin("two", title_if_new="two")).session.title == "two"


async def test_an_expiry_can_be_taken_away(conversation: Conversation) -> None:
    """And is left alone where nothing is said of it."""
    await conversation.append("one")
    await conversation.update(sets_expire_time=True, expire_time=SOME_TIME)
    assert (await conversation.update(title="A title")).expire_time == SOME_TIME
    assert (await conversation.update(sets_expire_time=True)).expire_time is None


async def test_metadata_is_merged_key_by_key(conversation: Conversation) -> None:
    """A None removes its key."""
    await conversation.append("one")
    await conversation.update(metadata={"a": 1, "b": {"c": 2}})
    assert (await conversation.update(metadata={"b": None, "d": [None]})).metadata == {"a": 1, "d": [None]}


async def test_a_hundred_changes_at_once_lose_no_key(conversation: Conversation) -> None:
    """Whatever else is written at the same time."""
    await conversation.append("one")
    free = asyncio.Semaphore(10)

    async def change(number: int) -> None:
        async with free:
            await conversation.update(metadata={f"key-{number}": number})

    await asyncio.gather(*(change(number) for number in range(100)), conversation.turn("amid them"))
    session = await conversation.session()
    assert session.metadata == {f"key-{number}": number for number in range(100)}
    assert session.revision == 103


@pytest.mark.parametrize(
    ("held", "change"),
    [
        ({f"key-{n}": n for n in range(METADATA_MAX_KEYS)}, {"one more": 1}),
        ({"a": "é" * (METADATA_MAX_BYTES // 4)}, {"b": "é" * (METADATA_MAX_BYTES // 4)}),
    ],
    ids=["keys", "bytes"],
)
async def test_merged_metadata_may_not_outgrow_its_limits(
    conversation: Conversation, held: dict[str, object], change: dict[str, object]
) -> None:
    """Nothing of the change is taken then."""
    await conversation.save("one", metadata=held)
    before = await conversation.session()
    with pytest.raises(InvalidField) as refusal:
        await conversation.update(title="A title", metadata=change, request_id="r")
    assert [violation.field for violation in refusal.value.violations] == ["metadata"]
    assert await conversation.session() == before
    # It left no record, either.
    assert (await conversation.update(title="A title", request_id="r")).title == "A title"


async def test_a_note_alone_moves_neither_revision_nor_time(conversation: Conversation) -> None:
    """It shows in the session and in the full list all the same."""
    before = (await conversation.append("one", "two")).session
    session = await conversation.update(note="of two", note_through_position=2)
    assert (session.revision, session.update_time) == (before.revision, before.update_time)
    page = await conversation.store.list_sessions(
        conversation.user_id, page_size=10, after=None, full=True, max_bytes=MIB
    )
    assert [(each.note, each.note_through_position) for each in page.sessions] == [("of two", 2)]


async def test_a_note_moves_what_the_list_is_at(conversation: Conversation) -> None:
    """Or a list that was read before it would pass for new."""
    await conversation.append("one")
    before = await conversation.store.user_version(conversation.user_id)
    await conversation.update(note="a note", note_through_position=1)
    assert (await conversation.store.user_version(conversation.user_id)).revision != before.revision


async def test_a_note_with_another_change_moves_the_revision(conversation: Conversation) -> None:
    """By one."""
    before = (await conversation.append("one")).session
    assert (await conversation.update(note="a note", title="A title")).revision == before.revision + 1


@pytest.mark.parametrize("through", [0, 1, 2])
async def test_an_older_note_never_replaces_a_newer_one(conversation: Conversation, through: int) -> None:
    """Nor one that goes as far: it is passed over, and the rest of the change is taken."""
    await conversation.append("one", "two", "three")
    await conversation.update(note="of two", note_through_position=2)
    session = await conversation.update(note="late", note_through_position=through, title="A title")
    assert (session.note, session.note_through_position, session.title) == ("of two", 2, "A title")


async def test_a_note_goes_no_further_than_the_session(conversation: Conversation) -> None:
    """One that claimed to would shut out every later one."""
    await conversation.append("one", "two")
    assert (await conversation.update(note="of all", note_through_position=10**9)).note_through_position == 2
    await conversation.append("three")
    assert (await conversation.update(note="of three", note_through_position=3)).note == "of three"


async def test_a_note_that_goes_through_no_position_replaces_its_like(conversation: Conversation) -> None:
    """It can be written and changed as long as nobody says how far notes go."""
    await conversation.append("one")
    await conversation.update(note="first")
    assert (await conversation.update(note="second")).note == "second"
    assert (await conversation.update(note="of one", note_through_position=1)).note == "of one"
    assert (await conversation.update(note="third")).note == "of one"


async def test_of_notes_at_once_the_one_that_goes_furthest_stays(conversation: Conversation) -> None:
    """In whatever order they come."""
    await conversation.append(*map(str, range(10)))
    await asyncio.gather(*(conversation.update(note=str(n), note_through_position=n) for n in range(1, 9)))
    session = await conversation.session()
    assert (session.note, session.note_through_position) == ("8", 8)


async def test_nothing_set_changes_nothing(conversation: Conversation) -> None:
    """The session comes back as it is, where it is as expected."""
    before = (await conversation.append("one")).session
    assert await conversation.update() == before
    assert await conversation.update(expected_revision=before.revision) == before
    with pytest.raises(RevisionMismatch):
        await conversation.update(expected_revision=before.revision + 1)
    assert await conversation.session() == before


async def test_a_session_can_be_changed_while_a_run_holds_it(conversation: Conversation) -> None:
    """Neither loses what the other writes."""
    begun = await conversation.begin("question", title_if_new="question")
    session = await conversation.update(title="A title", metadata={"a": 1})
    assert session.active_run_id == begun.run.run_id
    finished = await conversation.finish(begun, said("answer"), metadata={"b": 2})
    assert (finished.session.title, finished.session.metadata) == ("A title", {"a": 1, "b": 2})
    assert finished.session.revision == session.revision + 1


@pytest.mark.parametrize("expected", [None, 0, 1])
async def test_a_session_that_is_not_there_is_not_found(conversation: Conversation, expected: int | None) -> None:
    """It does not come into being by a change of it."""
    with pytest.raises(SessionNotFound):
        await conversation.update(title="A title", metadata={"a": 1}, expected_revision=expected)
    with pytest.raises(SessionNotFound):
        await conversation.session()
