"""A writer that names the revision it has seen changes nothing else."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from services.storage.errors import RevisionMismatch
from tests.conformance.conversation import Conversation

Write = Callable[[Conversation, int], Awaitable[object]]

_WRITES: dict[str, Write] = {
    "append_messages": lambda conversation, expected: conversation.append("written", expected_revision=expected),
    "save_session": lambda conversation, expected: conversation.save("written", expected_revision=expected),
    "update_session": lambda conversation, expected: conversation.update(title="written", expected_revision=expected),
    "update_session (metadata)": lambda conversation, expected: conversation.update(
        metadata={"written": 1}, expected_revision=expected
    ),
    "delete_messages": lambda conversation, expected: conversation.delete_messages(after=1, expected_revision=expected),
}

every_write = pytest.mark.parametrize("name", list(_WRITES))


@every_write
async def test_the_revision_that_was_seen_lets_a_write_through(conversation: Conversation, name: str) -> None:
    """Which makes it the next one."""
    await conversation.append("one", "two")
    await _WRITES[name](conversation, 1)
    assert (await conversation.session()).revision == 2


@every_write
@pytest.mark.parametrize("expected", [0, 1, 3])
async def test_any_other_changes_nothing(conversation: Conversation, name: str, expected: int) -> None:
    """It is told which one there is."""
    await conversation.append("one", "two")
    await conversation.append("three")
    before = await conversation.session()
    with pytest.raises(RevisionMismatch) as refusal:
        await _WRITES[name](conversation, expected)
    assert refusal.value.metadata == {"expected_revision": str(expected), "revision": "2"}
    assert await conversation.session() == before
    assert await conversation.contents() == ["one", "two", "three"]


@every_write
async def test_one_of_many_at_once_gets_through(conversation: Conversation, name: str) -> None:
    """The others are ABORTED."""
    await conversation.append("one", "two", "three")
    outcomes = await asyncio.gather(*(_WRITES[name](conversation, 1) for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(outcome, RevisionMismatch) for outcome in outcomes) == 9
    assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 1
    assert (await conversation.session()).revision == 2


async def test_one_of_many_at_once_makes_the_session(conversation: Conversation) -> None:
    """Where each expects that there is none."""
    outcomes = await asyncio.gather(
        *(_WRITES[name](conversation, 0) for name in ["append_messages", "save_session"] * 5), return_exceptions=True
    )
    assert sum(isinstance(outcome, RevisionMismatch) for outcome in outcomes) == 9
    assert await conversation.contents() == ["written"]


@pytest.mark.parametrize("name", ["append_messages", "save_session"])
async def test_a_first_write_at_once_from_many_succeeds_for_all(conversation: Conversation, name: str) -> None:
    """Where nobody expects anything."""

    async def write(number: int) -> None:
        if name == "append_messages":
            await conversation.append(f"{number}")
        else:
            await conversation.save(f"{number}")

    await asyncio.gather(*(write(number) for number in range(10)))
    session = await conversation.session()
    assert session.revision == 10
    assert session.message_count == (10 if name == "append_messages" else 1)


async def test_overwrites_race_appends_without_a_mixture(conversation: Conversation) -> None:
    """Of all that have seen one state, one writes."""
    await conversation.append("one")
    for revision in range(1, 6):
        outcomes = await asyncio.gather(
            conversation.append("appended", expected_revision=revision),
            conversation.save("saved", expected_revision=revision),
            conversation.append("appended", expected_revision=revision),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, RevisionMismatch) for outcome in outcomes) == 2
        contents = await conversation.contents()
        assert contents[-1] in ("appended", "saved")
        assert "saved" not in contents or contents.index("saved") == 0


async def test_a_deleted_session_is_at_no_revision(conversation: Conversation) -> None:
    """A writer that has seen it writes into no other of its id."""
    await conversation.append("one")
    await conversation.delete()
    with pytest.raises(RevisionMismatch) as refusal:
        await conversation.append("two", expected_revision=1)
    assert refusal.value.metadata["revision"] == "0"
