"""Messages are added to a session's end, however many write at once."""

import asyncio
from datetime import UTC, datetime

import pytest

from services.runtime.errors import InvalidField
from services.storage.errors import MessageIdExists, RevisionMismatch, RunInProgress, SessionNotFound
from services.storage.models import MessageStatus, MessageType, NewMessage, RunStatus
from tests.conformance.conversation import RUN_OUT, Conversation, said


async def test_the_first_message_makes_the_session(conversation: Conversation) -> None:
    """It is at revision 1, and its time is the message's."""
    appended = await conversation.append("Hello", said("Hello to you"))
    assert appended.session == await conversation.session()
    assert (appended.session.revision, appended.session.message_count) == (1, 2)
    assert appended.session.title == conversation.session_id
    assert {message.create_time for message in appended.messages} == {appended.session.update_time}
    assert list(appended.messages) == await conversation.messages()


async def test_messages_follow_the_last_in_their_order(conversation: Conversation) -> None:
    """The revision grows by one, whatever their number."""
    await conversation.turn("one", said("two"))
    before = await conversation.session()
    appended = await conversation.append("three", "four", "five")
    assert [message.position for message in appended.messages] == [3, 4, 5]
    assert (appended.session.revision, appended.session.message_count) == (before.revision + 1, 5)
    assert appended.session.update_time > before.update_time
    assert await conversation.contents() == ["one", "two", "three", "four", "five"]


async def test_all_that_a_message_brings_is_stored(conversation: Conversation) -> None:
    """Byte for byte: its trace, its extra JSON, its time to the microsecond."""
    message = NewMessage(
        type=MessageType.TOOL,
        content="\u200d👩‍👩‍👧 \ufeff\u2028 می‌خواهم é e\u0301 保留\r\n\t",
        message_id="m-1",
        status=MessageStatus.STOPPED,
        create_time=datetime(2020, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
        run_id="imported",
        trace=b"\x00\xff not text",
        extra_json='{"a" : 1.0,  "a":[]}',
    )
    appended = await conversation.append(message)
    stored = await conversation.store.get_message(conversation.user_id, conversation.session_id, "m-1")
    assert (stored,) == tuple(appended.messages)
    for name in ("type", "content", "message_id", "status", "create_time", "run_id", "trace", "extra_json"):
        assert getattr(stored, name) == getattr(message, name)


async def test_what_a_message_leaves_open_is_the_stores_to_set(conversation: Conversation) -> None:
    """An id of its own, COMPLETE, now, and nothing for the rest."""
    first, second = (await conversation.append("one", "two")).messages
    assert first.message_id and second.message_id and first.message_id != second.message_id
    assert (first.status, first.run_id, first.trace, first.extra_json) == (MessageStatus.COMPLETE, "", None, "")


async def test_a_thousand_messages_go_at_once(conversation: Conversation) -> None:
    """In order, as one change."""
    contents = [str(number) for number in range(1_000)]
    appended = await conversation.append(*contents)
    assert [message.content for message in appended.messages] == contents
    assert await conversation.contents() == contents
    assert appended.session.revision == 1


@pytest.mark.parametrize("begins_new", [True, False])
async def test_a_hundred_appends_at_once_lose_and_repeat_none(conversation: Conversation, begins_new: bool) -> None:
    """Positions are 1 to n, whether or not the session was there; each call is told its own."""
    if not begins_new:
        await conversation.append("first")
    # Each waits for the one before, and no more wait at once than there are connections.
    free = asyncio.Semaphore(10)

    async def append(number: int) -> None:
        async with free:
            appended = await conversation.append(f"{number}", said(f"{number}!"))
        first, second = appended.messages
        assert (appended.session.message_count, second.position) == (second.position, first.position + 1)
        told[first.position] = first.message_id

    told: dict[int, str] = {}
    await asyncio.gather(*(append(number) for number in range(100)))
    messages = await conversation.messages()
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    assert len(messages) == 200 + (not begins_new)
    assert len({message.content for message in messages}) == len(messages)
    assert all(messages[position - 1].message_id == message_id for position, message_id in told.items())
    session = await conversation.session()
    assert session.revision == 100 + (not begins_new)
    times = [message.create_time for message in messages]
    assert times == sorted(times)


async def test_an_id_that_is_there_is_refused(conversation: Conversation) -> None:
    """It says which, and nothing of the request is stored."""
    await conversation.append(said("one", message_id="m-1"))
    before = await conversation.session()
    with pytest.raises(MessageIdExists) as refusal:
        await conversation.append("two", said("three", message_id="m-3"), said("again", message_id="m-1"))
    assert refusal.value.metadata == {"message_id": "m-1"}
    assert await conversation.session() == before
    assert await conversation.contents() == ["one"]


async def test_an_id_is_a_sessions_own(conversation: Conversation) -> None:
    """Another session may have a message of the same id."""
    other = conversation.another()
    for each in (conversation, other):
        await each.append(said("one", message_id="m-1"))
    assert await other.contents() == ["one"]


async def test_an_id_may_not_come_twice_in_one_request(conversation: Conversation) -> None:
    """The session does not come into being by it."""
    with pytest.raises(InvalidField) as refusal:
        await conversation.append(said("one", message_id="m-1"), said("two", message_id="m-1"))
    assert [violation.field for violation in refusal.value.violations] == ["messages"]
    with pytest.raises(SessionNotFound):
        await conversation.session()


async def test_the_same_id_at_once_is_stored_once(conversation: Conversation) -> None:
    """The others are told of it."""
    outcomes = await asyncio.gather(
        *(conversation.append(said(str(number), message_id="m-1")) for number in range(8)), return_exceptions=True
    )
    assert sum(isinstance(outcome, MessageIdExists) for outcome in outcomes) == 7
    assert len(await conversation.messages()) == 1


async def test_nobody_adds_to_a_session_that_a_run_holds(conversation: Conversation) -> None:
    """Nothing of it is stored; after the run's end it is."""
    begun = await conversation.begin("question")
    with pytest.raises(RunInProgress) as refusal:
        await conversation.append("in between")
    assert refusal.value.metadata == {"active_run_id": begun.run.run_id}
    await conversation.finish(begun, said("answer"))
    await conversation.append("after")
    assert await conversation.contents() == ["question", "answer", "after"]


async def test_a_run_whose_lease_has_run_out_holds_nothing_up(conversation: Conversation) -> None:
    """It is ended first, and its question waits again."""
    task = await conversation.ask_back()
    lost = await conversation.begin("Harbor", lease=RUN_OUT)
    appended = await conversation.append("anyone there?")
    assert (appended.session.active_run_id, appended.session.pending_hitl_task_id) == ("", task.task_id)
    run = await conversation.store.get_run(conversation.user_id, lost.run.run_id)
    assert (run.status, run.error and run.error.reason) == (RunStatus.FAILED, "HOLDER_LOST")
    assert (await conversation.contents())[-1] == "anyone there?"


async def test_a_run_begins_after_what_was_added(conversation: Conversation) -> None:
    """And has it in its context."""
    await conversation.append("one", said("two"))
    begun = await conversation.begin("three", max_context_messages=10)
    assert [message.content for message in begun.context] == ["one", "two"]
    assert begun.run.human_position == 3


async def test_a_question_that_waits_goes_on_waiting(conversation: Conversation) -> None:
    """Messages that callers add answer nothing."""
    task = await conversation.ask_back()
    appended = await conversation.append("Harbor")
    assert appended.session.pending_hitl_task_id == task.task_id


async def test_a_deletion_amid_appends_leaves_a_whole_session_or_none(conversation: Conversation) -> None:
    """Whatever comes first, positions have no gap, and the count is theirs."""

    async def append() -> None:
        for number in range(20):
            await conversation.append(str(number))

    async def delete() -> None:
        for _ in range(20):
            try:
                await conversation.delete()
            except SessionNotFound:
                await asyncio.sleep(0)

    await asyncio.gather(append(), append(), delete())
    await conversation.append("last")
    messages = await conversation.messages()
    session = await conversation.session()
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    assert session.message_count == session.revision == len(messages)


@pytest.mark.parametrize("expected", [0, 1, 7])
async def test_nothing_is_made_of_a_session_that_is_not_as_expected(conversation: Conversation, expected: int) -> None:
    """Neither of one that is not there, unless that is what was expected."""
    if expected:
        with pytest.raises(RevisionMismatch) as refusal:
            await conversation.append("one", expected_revision=expected)
        assert refusal.value.metadata == {"expected_revision": str(expected), "revision": "0"}
        with pytest.raises(SessionNotFound):
            await conversation.session()
    else:
        assert (await conversation.append("one", expected_revision=expected)).session.revision == 1
