"""A session's whole history is replaced, and what stays of it stays as it is."""

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from services.runtime.errors import InvalidField
from services.storage.errors import (
    HitlTaskNotPending,
    MessageNotFound,
    RevisionMismatch,
    RunInProgress,
    SessionNotFound,
)
from services.storage.models import (
    METADATA_MAX_KEYS,
    HitlState,
    Message,
    MessageStatus,
    MessageType,
    NewMessage,
    RunStatus,
)
from tests.conformance.conversation import RUN_OUT, Conversation, said


def _kept(message: Message) -> NewMessage:
    """As a caller gives a message back that it has read without its details."""
    return NewMessage(
        type=message.type, content=message.content, message_id=message.message_id, extra_json=message.extra_json
    )


async def test_a_session_comes_into_being_with_its_history(conversation: Conversation) -> None:
    """At revision 1, numbered from 1."""
    session = await conversation.save("one", said("two"), metadata={"topic": "retention", "none": None})
    assert session == await conversation.session()
    assert (session.revision, session.message_count) == (1, 2)
    assert session.metadata == {"topic": "retention"}
    assert [(message.position, message.content) for message in await conversation.messages()] == [
        (1, "one"),
        (2, "two"),
    ]


async def test_the_old_history_is_gone(conversation: Conversation) -> None:
    """Messages without an id are new ones, whatever they say."""
    await conversation.append(said("one", message_id="m-1"), "two", "three")
    session = await conversation.save("one", "four")
    assert (session.revision, session.message_count) == (2, 2)
    assert await conversation.contents() == ["one", "four"]
    with pytest.raises(MessageNotFound):
        await conversation.store.get_message(conversation.user_id, conversation.session_id, "m-1")


async def test_what_is_kept_keeps_its_details(conversation: Conversation) -> None:
    """Its time, status, run and trace, which the request does not name."""
    begun = await conversation.begin("question")
    await conversation.finish(begun, said("half an", trace=b"\x00trace"), status=RunStatus.CANCELLED)
    await conversation.append(
        NewMessage(
            type=MessageType.SYSTEM,
            content="note",
            status=MessageStatus.FAILED,
            create_time=datetime(2020, 1, 1, tzinfo=UTC),
            run_id="imported",
            trace=b"t",
            extra_json="{}",
        )
    )
    before = await conversation.messages()
    await conversation.save(*(_kept(message) for message in before))
    assert await conversation.messages() == before


async def test_what_the_request_sets_is_set(conversation: Conversation) -> None:
    """On messages that are kept, too; the rest of them stays."""
    await conversation.append(said("one", message_id="m-1", trace=b"old", extra_json='{"a":1}'))
    [old] = await conversation.messages()
    time = datetime(2021, 3, 4, 5, 6, 7, 8, tzinfo=UTC)
    await conversation.save(
        NewMessage(
            type=MessageType.SYSTEM,
            content="one, corrected",
            message_id="m-1",
            status=MessageStatus.STOPPED,
            create_time=time,
            run_id="r",
            trace=b"new",
        )
    )
    [new] = await conversation.messages()
    assert new == replace(
        old,
        type=MessageType.SYSTEM,
        content="one, corrected",
        status=MessageStatus.STOPPED,
        create_time=time,
        run_id="r",
        trace=b"new",
        extra_json="",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"type": MessageType.SYSTEM},
        {"content": "other"},
        {"content": "one "},
        {"status": MessageStatus.FAILED},
        {"create_time": datetime(2021, 3, 4, tzinfo=UTC)},
        {"run_id": "r"},
        {"trace": b""},
        {"trace": b"new"},
        {"extra_json": "{}"},
    ],
    ids=str,
)
async def test_any_one_change_is_seen(conversation: Conversation, change: dict[str, Any]) -> None:
    """Also of what there was nothing of; all else stays."""
    await conversation.append(said("one", message_id="m-1"))
    [old] = await conversation.messages()
    await conversation.save(replace(said("one", message_id="m-1"), **change))
    assert await conversation.messages() == [replace(old, **change)]


@pytest.mark.parametrize(
    "order", ["b a", "c b a", "b c a", "a c", "c", "x a b c", "a x b x c", "c x", "x x x x x", "", "a b c"]
)
async def test_kept_messages_take_any_order(conversation: Conversation, order: str) -> None:
    """Turned round, cut, or with new ones between: numbered anew, and otherwise as they were."""
    await conversation.append(*(said(name, message_id=name, trace=name.encode()) for name in "abc"))
    before = {message.message_id: message for message in await conversation.messages()}
    names = order.split()
    await conversation.save(*(said(name, message_id="" if name == "x" else name) for name in names))
    messages = await conversation.messages()
    assert [message.content for message in messages] == names
    assert [message.position for message in messages] == list(range(1, len(names) + 1))
    for message in messages:
        if message.message_id in before:
            assert message == replace(before[message.message_id], position=message.position)


async def test_a_long_history_takes_any_order(conversation: Conversation) -> None:
    """A thousand messages shuffled, a third of them gone, with new ones among them and some changed."""
    chance = random.Random(7)
    for start in range(0, 1_000, 500):
        await conversation.append(*(said(str(n), message_id=f"m-{n}") for n in range(start, start + 500)))
    wanted = [said(f"{n}", message_id=f"m-{n}") for n in range(1_000) if n % 3]
    wanted += [said(f"new {n}", message_id="" if n % 2 else f"n-{n}") for n in range(200)]
    chance.shuffle(wanted)
    wanted[::10] = [replace(message, content=f"{message.content}, changed") for message in wanted[::10]]
    session = await conversation.save(*wanted)
    messages = await conversation.messages()
    assert [message.content for message in messages] == [message.content for message in wanted]
    assert [message.position for message in messages] == list(range(1, len(wanted) + 1))
    assert session.message_count == len(wanted)
    assert all(one.message_id in ("", other.message_id) for one, other in zip(wanted, messages, strict=True))


async def test_runs_know_where_their_messages_have_gone(conversation: Conversation) -> None:
    """And that they are gone."""
    finished = await conversation.turn("question", said("answer", message_id="answer"))
    await conversation.save("new first", said("answer", message_id="answer"))
    run = await conversation.store.get_run(conversation.user_id, finished.run.run_id)
    assert (run.human_position, run.human_message_id) == (0, "")
    assert (run.ai_position, run.ai_message_id) == (2, "answer")


async def test_an_id_may_not_come_twice(conversation: Conversation) -> None:
    """Nothing changes by it."""
    await conversation.append("one")
    with pytest.raises(InvalidField) as refusal:
        await conversation.save(said("a", message_id="m-1"), said("b", message_id="m-1"))
    assert [violation.field for violation in refusal.value.violations] == ["messages"]
    assert await conversation.contents() == ["one"]


async def test_metadata_is_merged(conversation: Conversation) -> None:
    """Key by key; a None removes its key, and what is not named stays."""
    await conversation.save(metadata={"a": 1, "b": 2})
    session = await conversation.save("one", metadata={"b": None, "c": {"d": None}})
    assert session.metadata == {"a": 1, "c": {"d": None}}


async def test_metadata_past_its_limits_saves_nothing(conversation: Conversation) -> None:
    """The messages neither."""
    await conversation.save("one", metadata={f"key-{n}": n for n in range(METADATA_MAX_KEYS)})
    before = await conversation.session()
    with pytest.raises(InvalidField):
        await conversation.save("two", metadata={"one more": 1})
    assert await conversation.session() == before
    assert await conversation.contents() == ["one"]


async def test_a_question_goes_with_its_message(conversation: Conversation) -> None:
    """It is CANCELLED, and can be answered no more."""
    task = await conversation.ask_back()
    session = await conversation.save("one")
    assert session.pending_hitl_task_id == ""
    stored = await conversation.store.get_hitl_task(conversation.user_id, task.task_id)
    assert stored.state is HitlState.CANCELLED and stored.resolve_time is not None
    with pytest.raises(HitlTaskNotPending):
        await conversation.begin("Harbor", answers_task_id=task.task_id)


async def test_a_question_whose_message_is_kept_goes_on_waiting(conversation: Conversation) -> None:
    """Wherever it stands by then."""
    task = await conversation.ask_back()
    [_, asked] = await conversation.messages()
    session = await conversation.save("new first", "new second", _kept(asked))
    assert session.pending_hitl_task_id == task.task_id
    begun = await conversation.begin("Harbor")
    assert begun.claimed_task is not None and begun.claimed_task.task_id == task.task_id


async def test_an_answered_question_stays_answered(conversation: Conversation) -> None:
    """Its message may go."""
    task = await conversation.ask_back()
    await conversation.turn("Harbor")
    await conversation.save("one")
    assert (await conversation.store.get_hitl_task(conversation.user_id, task.task_id)).state is HitlState.ANSWERED


async def test_the_note_speaks_of_nothing_that_is_gone(conversation: Conversation) -> None:
    """Its text stays; a later one is not held off by it."""
    await conversation.append("one", "two", "three")
    await conversation.update(note="of three", note_through_position=3)
    session = await conversation.save("one", "two")
    assert (session.note, session.note_through_position) == ("of three", 2)


async def test_nobody_saves_over_a_run(conversation: Conversation) -> None:
    """Nothing changes; a run whose lease has run out is ended first."""
    begun = await conversation.begin("question")
    with pytest.raises(RunInProgress):
        await conversation.save("over it")
    await conversation.finish(begun, said("answer"))
    assert await conversation.contents() == ["question", "answer"]
    await conversation.begin("lost", lease=RUN_OUT)
    session = await conversation.save("over it")
    assert session.active_run_id == ""
    assert await conversation.contents() == ["over it"]


async def test_title_note_and_expiry_stay(conversation: Conversation) -> None:
    """They are no part of the history."""
    await conversation.append("one")
    time = datetime(2090, 1, 1, tzinfo=UTC)
    await conversation.update(title="A title", note="a note", sets_expire_time=True, expire_time=time)
    session = await conversation.save("two")
    assert (session.title, session.note, session.expire_time) == ("A title", "a note", time)


async def test_saves_and_appends_at_once_never_mix(conversation: Conversation) -> None:
    """Each save is whole: what follows one is what was appended since."""

    async def save(number: int) -> None:
        await conversation.save(*[f"save {number}"] * 5)

    async def append(number: int) -> None:
        await conversation.append(f"append {number}")

    work = [save(n) if n % 3 == 0 else append(n) for n in range(12)]
    await asyncio.gather(*work)
    contents = await conversation.contents()
    session = await conversation.session()
    assert (session.revision, session.message_count) == (12, len(contents))
    saved = [content for content in contents if content.startswith("save")]
    assert saved == contents[: len(saved)]
    assert len(set(saved)) == 1 and len(saved) == 5


@pytest.mark.parametrize("expected", [0, 7])
async def test_a_session_that_is_not_as_expected_is_left_alone(conversation: Conversation, expected: int) -> None:
    """Whether there is one or none."""
    if expected:
        with pytest.raises(RevisionMismatch):
            await conversation.save("one", expected_revision=expected)
        with pytest.raises(SessionNotFound):
            await conversation.session()
    await conversation.save("one", expected_revision=0)
    with pytest.raises(RevisionMismatch):
        await conversation.save("two", expected_revision=expected)
    assert await conversation.contents() == ["one"]
