"""What a run starts with: the newest messages before its own."""

from services.storage.models import MessageStatus, RunStatus
from tests.conformance.conversation import MIB, Conversation, question, said


async def test_the_context_is_the_newest_messages_before_this_turn_oldest_first(conversation: Conversation) -> None:
    """At most as many as asked for, without the new message itself."""
    for n in range(3):
        await conversation.turn(f"question {n}", said(f"answer {n}"))
    begun = await conversation.begin("question 3", max_context_messages=3)
    assert [message.content for message in begun.context] == ["answer 1", "question 2", "answer 2"]
    assert not begun.context_truncated


async def test_a_first_turn_has_no_context(conversation: Conversation) -> None:
    """Nothing was said before it."""
    begun = await conversation.begin(max_context_messages=10)
    assert (tuple(begun.context), begun.context_truncated) == ((), False)


async def test_no_context_is_read_where_none_is_asked_for(conversation: Conversation) -> None:
    """Zero messages are none, not all."""
    await conversation.turn()
    assert tuple((await conversation.begin(max_context_messages=0)).context) == ()


async def test_the_context_leaves_traces_out(conversation: Conversation) -> None:
    """A model needs none."""
    await conversation.turn(reply=said("Thirty days [1].", trace=b"\x01" * 1000))
    begun = await conversation.begin(max_context_messages=10)
    assert [message.trace for message in begun.context] == [None, None]


async def test_what_was_cut_short_is_part_of_the_context(conversation: Conversation) -> None:
    """Stopped and failed replies, and questions back, as far as the user saw them."""
    await conversation.finish(await conversation.begin(), said("Thirty d"), status=RunStatus.CANCELLED)
    await conversation.finish(await conversation.begin(), said("Thir"), status=RunStatus.FAILED)
    await conversation.ask_back(question("Which one?"))
    begun = await conversation.begin(max_context_messages=100)
    assert [(m.content, m.status) for m in begun.context if m.content.startswith(("Th", "Wh"))] == [
        ("Thirty d", MessageStatus.STOPPED),
        ("Thir", MessageStatus.FAILED),
        ("Which one?", MessageStatus.AWAITING_INPUT),
    ]


async def test_the_context_says_where_its_bytes_left_messages_out(conversation: Conversation) -> None:
    """At most 2 MiB of the newest."""
    for n in range(3):
        await conversation.turn(f"question {n}", said(str(n) * (MIB - 1024)))
    begun = await conversation.begin(max_context_messages=100)
    assert [message.content[:10] for message in begun.context] == ["question 1", "1" * 10, "question 2", "2" * 10]
    assert begun.context_truncated
