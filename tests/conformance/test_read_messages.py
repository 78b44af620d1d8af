"""A history is read whole, in part, or page by page; always in order, and always one state of it."""

import asyncio
import random

import pytest

from services.storage.errors import MessageNotFound, SessionNotFound
from services.storage.models import Message, MessageType, NewMessage
from services.storage.store.base import MESSAGE_OVERHEAD_BYTES
from services.storage.store.commands import AppendMessages
from services.storage.store.results import LoadedSession
from tests.conformance.conversation import MIB, Conversation, new_name, said


async def _load(
    conversation: Conversation, *, max_messages: int = 0, include_traces: bool = True, max_bytes: int = MIB
) -> LoadedSession:
    return await conversation.store.load_session(
        conversation.user_id,
        conversation.session_id,
        max_messages=max_messages,
        include_traces=include_traces,
        max_bytes=max_bytes,
    )


async def _pages(
    conversation: Conversation, *, page_size: int, descending: bool = False, max_bytes: int = MIB
) -> list[list[Message]]:
    pages: list[list[Message]] = []
    after = None
    while True:
        page = await conversation.store.list_messages(
            conversation.user_id,
            conversation.session_id,
            page_size=page_size,
            after=after,
            descending=descending,
            include_traces=True,
            max_bytes=max_bytes,
        )
        pages.append(list(page.messages))
        after = page.next
        if after is None:
            return pages


async def _talk(conversation: Conversation, turns: int, *, trace: bytes | None = None) -> None:
    for n in range(turns):
        await conversation.turn(f"question {n}", said(f"answer {n}", trace=trace))


async def test_loading_returns_the_session_and_all_its_messages(conversation: Conversation) -> None:
    """Oldest first."""
    await _talk(conversation, 2)
    loaded = await _load(conversation)
    assert [message.content for message in loaded.messages] == ["question 0", "answer 0", "question 1", "answer 1"]
    assert loaded.session == await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert not loaded.truncated


async def test_loading_the_last_few_returns_the_newest_oldest_first(conversation: Conversation) -> None:
    """And says that there are older ones; the session comes whole all the same."""
    await _talk(conversation, 2)
    finished = await conversation.finish(await conversation.begin("question 2"), metadata={"topic": "retention"})
    loaded = await _load(conversation, max_messages=3)
    assert [message.content for message in loaded.messages] == ["question 1", "answer 1", "question 2"]
    assert loaded.truncated
    assert loaded.session == finished.session


async def test_loading_as_many_as_there_are_leaves_none_out(conversation: Conversation) -> None:
    """The limit itself is no sign of more."""
    await _talk(conversation, 1)
    assert not (await _load(conversation, max_messages=2)).truncated


async def test_loading_stops_before_it_grows_too_large(conversation: Conversation) -> None:
    """The oldest are left out, and it says so; traces count where they are asked for."""
    await _talk(conversation, 4, trace=b"x" * 10_000)
    with_traces = await _load(conversation, max_bytes=25_000)
    assert [message.content for message in with_traces.messages] == [
        "question 2", "answer 2", "question 3", "answer 3"
    ]  # fmt: skip
    assert with_traces.truncated
    assert not (await _load(conversation, max_bytes=25_000, include_traces=False)).truncated


@pytest.mark.parametrize("include_traces", [True, False])
async def test_a_long_session_is_loaded_to_the_byte(conversation: Conversation, include_traces: bool) -> None:
    """As many of the newest as fit, and as were asked for, wherever that ends."""
    count = 2_100
    new = [
        NewMessage(type=MessageType.AI, content="é" * (n % 40), message_id=f"m-{n}", trace=b"t" * (n % 7) or None)
        for n in range(count)
    ]
    for start in range(0, count, 700):
        await conversation.store.append_messages(
            AppendMessages(
                user_id=conversation.user_id,
                session_id=conversation.session_id,
                messages=new[start : start + 700],
            )
        )
    newest_first = [
        MESSAGE_OVERHEAD_BYTES
        + len(message.content.encode())
        + len(message.message_id)
        + (len(message.trace or b"") if include_traces else 0)
        for message in reversed(new)
    ]
    for fit in (999, 1_000, 1_001, 1_999, 2_000, 2_001, 2_099, 2_100):
        exactly = sum(newest_first[:fit])
        for max_bytes, expected in ((exactly - 1, fit - 1), (exactly, fit)):
            loaded = await _load(conversation, max_bytes=max_bytes, include_traces=include_traces)
            assert len(loaded.messages) == expected
            assert loaded.truncated == (expected < count)
    for max_messages in (1_000, 1_001, 2_000, 2_001, 2_100, 3_000):
        loaded = await _load(conversation, max_messages=max_messages, include_traces=include_traces)
        first = max(1, count - max_messages + 1)
        assert [message.position for message in loaded.messages] == list(range(first, count + 1))
        assert loaded.session == await conversation.store.get_session(conversation.user_id, conversation.session_id)
        assert loaded.truncated == (max_messages < count)


async def test_the_newest_message_is_loaded_however_large(conversation: Conversation) -> None:
    """A limit never makes a session unreadable."""
    await conversation.turn(reply=said("x" * MIB))
    loaded = await _load(conversation, max_bytes=1000)
    assert [len(message.content) for message in loaded.messages] == [MIB]
    assert loaded.truncated


async def test_traces_are_left_out_unless_asked_for(conversation: Conversation) -> None:
    """The rest of the message is the same."""
    await _talk(conversation, 1, trace=b"\x00trace")
    [_, with_trace] = (await _load(conversation)).messages
    [_, without] = (await _load(conversation, include_traces=False)).messages
    assert (with_trace.trace, without.trace) == (b"\x00trace", None)
    assert without.message_id == with_trace.message_id


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("page_size", [1, 3, 8, 100])
async def test_pages_hold_every_message_once_in_order(
    conversation: Conversation, page_size: int, descending: bool
) -> None:
    """In either direction, full but for the last, and none empty."""
    await _talk(conversation, 4)
    pages = await _pages(conversation, page_size=page_size, descending=descending)
    positions = [message.position for page in pages for message in page]
    assert positions == sorted(range(1, 9), reverse=descending)
    assert all(len(page) == page_size for page in pages[:-1])
    assert pages[-1]


@pytest.mark.parametrize("descending", [False, True])
async def test_pages_are_bounded_by_their_bytes(conversation: Conversation, descending: bool) -> None:
    """A page ends early, with at least one message; the next goes on from there."""
    sizes = [100, 30_000, 5_000, 5_000, 60_000, 100]
    for size in sizes:
        await conversation.turn("q", said("x" * size, trace=b"t" * size))
    pages = await _pages(conversation, page_size=100, descending=descending, max_bytes=32_000)
    assert [m.position for page in pages for m in page] == sorted(range(1, 13), reverse=descending)
    for page in pages:
        assert len(page) == 1 or sum(len(m.content) + len(m.trace or b"") for m in page) <= 32_000
    assert 1 < len(pages) < 12


async def test_a_page_stays_where_it_was_while_messages_are_added(conversation: Conversation) -> None:
    """Its successor holds what follows it, the new ones too."""
    await _talk(conversation, 2)
    store, names = conversation.store, (conversation.user_id, conversation.session_id)
    first = await store.list_messages(
        *names, page_size=3, after=None, descending=False, include_traces=False, max_bytes=MIB
    )
    await _talk(conversation, 1)
    second = await store.list_messages(
        *names, page_size=10, after=first.next, descending=False, include_traces=False, max_bytes=MIB
    )
    assert [message.position for message in (*first.messages, *second.messages)] == [1, 2, 3, 4, 5, 6]
    assert second.revision == first.revision + 2


async def test_a_page_after_the_end_is_empty(conversation: Conversation) -> None:
    """And the last."""
    await _talk(conversation, 1)
    page = await conversation.store.list_messages(
        conversation.user_id,
        conversation.session_id,
        page_size=3,
        after=2,
        descending=False,
        include_traces=True,
        max_bytes=MIB,
    )
    assert (tuple(page.messages), page.next, page.revision) == ((), None, 2)


async def test_a_message_is_found_by_its_id_with_its_trace(conversation: Conversation) -> None:
    """Wherever it stands."""
    await conversation.turn(reply=said("Thirty days [1].", message_id="m-1", trace=b"trace"))
    await _talk(conversation, 1)
    message = await conversation.store.get_message(conversation.user_id, conversation.session_id, "m-1")
    assert (message.content, message.trace, message.position) == ("Thirty days [1].", b"trace", 2)


async def test_a_message_of_another_session_is_not_found(conversation: Conversation) -> None:
    """Its id is told."""
    other = conversation.another()
    await other.turn(reply=said("Hello", message_id="m-1"))
    await conversation.turn()
    with pytest.raises(MessageNotFound) as refusal:
        await conversation.store.get_message(conversation.user_id, conversation.session_id, "m-1")
    assert refusal.value.metadata == {"message_id": "m-1"}


async def test_an_unknown_session_is_not_found(conversation: Conversation) -> None:
    """By any way of reading it; its id is told."""
    store, user_id, session_id = conversation.store, conversation.user_id, new_name()
    for reading in (
        store.get_session(user_id, session_id),
        store.load_session(user_id, session_id, max_messages=0, include_traces=True, max_bytes=MIB),
        store.list_messages(
            user_id, session_id, page_size=1, after=None, descending=False, include_traces=True, max_bytes=MIB
        ),
        store.get_message(user_id, session_id, "m-1"),
    ):
        with pytest.raises(SessionNotFound) as refusal:
            await reading
        assert refusal.value.metadata == {"session_id": session_id}


async def test_every_character_but_nul_comes_back_unchanged(conversation: Conversation) -> None:
    """Joiners, marks, other planes, line ends of every kind; never normalised."""
    text = "👩‍👩‍👧 می‌خواهم क्‍ष e\u0301 é \ufeff\u202e\u2028 \x01\x7f\r\n\t 𝔸 保留 '\"\\%$:name ::"
    characters = "".join(chr(n) for n in random.Random(7).sample(range(1, 0xD800), 2_000))
    await conversation.finish(await conversation.begin(text + characters), said(characters + text))
    assert await conversation.contents() == [text + characters, characters + text]


async def test_a_read_is_never_a_mixture_of_two_states(conversation: Conversation) -> None:
    """The count, the run and the messages agree, while turns go on beside it."""

    async def talk() -> None:
        await _talk(conversation, 15)

    talking = asyncio.create_task(talk())
    await _until_there(conversation)
    while not talking.done():
        loaded = await _load(conversation)
        assert loaded.session.message_count == len(loaded.messages) == loaded.messages[-1].position
        assert bool(loaded.session.active_run_id) == (len(loaded.messages) % 2 == 1)
        assert loaded.session.revision == len(loaded.messages)
    await talking


async def _until_there(conversation: Conversation) -> None:
    while True:
        try:
            await conversation.store.get_session(conversation.user_id, conversation.session_id)
            return
        except SessionNotFound:
            await asyncio.sleep(0)
