"""A run ends with its reply stored, and the session free."""

import asyncio

import pytest

from services.runtime.errors import InvalidField
from services.storage.errors import LeaseLost, MessageIdExists, RunNotFound
from services.storage.models import MessageStatus, MessageType, RunError, RunStatus, Usage
from services.storage.store.results import FinishedRun
from tests.conformance.conversation import Conversation, question, said


async def test_the_reply_is_stored_after_the_users_message(conversation: Conversation) -> None:
    """With its trace and its extra JSON, byte for byte."""
    begun = await conversation.begin("How long is it kept?")
    reply = said("Thirty days [1].", trace=b"\x00\x01\xff", extra_json='{"b": 1,  "a": 1.0}')
    finished = await conversation.finish(begun, reply)
    stored = (await conversation.messages())[1]
    assert stored == finished.reply
    assert (stored.position, stored.type, stored.content) == (2, MessageType.AI, "Thirty days [1].")
    assert (stored.trace, stored.extra_json) == (b"\x00\x01\xff", '{"b": 1,  "a": 1.0}')
    assert (stored.run_id, stored.message_id) == (begun.run.run_id, finished.run.ai_message_id)
    assert finished.run.ai_position == 2


@pytest.mark.parametrize(
    ("status", "reply_status"),
    [
        (RunStatus.COMPLETED, MessageStatus.COMPLETE),
        (RunStatus.AWAITING_INPUT, MessageStatus.AWAITING_INPUT),
        (RunStatus.CANCELLED, MessageStatus.STOPPED),
        (RunStatus.FAILED, MessageStatus.FAILED),
    ],
)
async def test_the_replys_status_follows_the_runs(
    conversation: Conversation, status: RunStatus, reply_status: MessageStatus
) -> None:
    """What was said is kept, however the run ended."""
    opened = question() if status is RunStatus.AWAITING_INPUT else None
    finished = await conversation.finish(
        await conversation.begin(), said("as far as it came"), status=status, opened_task=opened
    )
    assert finished.reply is not None and finished.reply.status is reply_status
    assert finished.run.status is status


async def test_a_run_may_end_without_a_reply(conversation: Conversation) -> None:
    """The question stays, and the run says that there is no answer."""
    finished = await conversation.finish(await conversation.begin("Hello"), status=RunStatus.FAILED)
    assert (finished.reply, finished.run.ai_position, finished.run.ai_message_id) == (None, 0, "")
    assert await conversation.contents() == ["Hello"]


async def test_finishing_frees_the_session(conversation: Conversation) -> None:
    """The next run can begin at once."""
    finished = await conversation.turn()
    assert finished.session.active_run_id == ""
    assert (await conversation.begin()).is_holder


async def test_a_run_keeps_why_it_failed_and_what_it_used(conversation: Conversation) -> None:
    """However long the text of the error is."""
    error = RunError(code=14, reason="MODEL_UNAVAILABLE", message="no answer " * 10_000)
    usage = Usage(input_tokens=2**40, output_tokens=0, model_calls=3)
    begun = await conversation.begin()
    await conversation.finish(begun, status=RunStatus.FAILED, error=error, usage=usage)
    run = await conversation.store.get_run(conversation.user_id, begun.run.run_id)
    assert (run.error, run.usage) == (error, usage)


async def test_finishing_again_gets_the_first_answer(conversation: Conversation) -> None:
    """The same token and body store nothing twice."""
    begun = await conversation.begin()

    async def finish() -> FinishedRun:
        return await conversation.finish(
            begun,
            said("Which one?", trace=b"trace"),
            status=RunStatus.AWAITING_INPUT,
            opened_task=question(),
            metadata={"topic": "retention"},
        )

    first, again = await finish(), await finish()
    assert again == first
    assert len(await conversation.messages()) == 2


async def test_finishing_again_shows_the_session_as_it_is_by_now(conversation: Conversation) -> None:
    """What has happened since is not hidden."""
    begun = await conversation.begin()
    first = await conversation.finish(begun, said("Hello to you"))
    await conversation.turn()
    again = await conversation.finish(begun, said("Hello to you"))
    assert (again.run, again.reply) == (first.run, first.reply)
    assert again.session.message_count == 4


async def test_many_finishing_at_once_store_one_reply(conversation: Conversation) -> None:
    """All get the same answer."""
    begun = await conversation.begin()
    finished = await asyncio.gather(*(conversation.finish(begun, said("Hello to you")) for _ in range(10)))
    assert {result.reply.message_id for result in finished if result.reply} == {finished[0].run.ai_message_id}
    assert len(await conversation.messages()) == 2


async def test_a_finished_run_takes_no_other_end(conversation: Conversation) -> None:
    """Another body under the right token is refused."""
    begun = await conversation.begin()
    await conversation.finish(begun, said("first"), request_hash=b"1")
    with pytest.raises(LeaseLost):
        await conversation.finish(begun, said("second"), request_hash=b"2")
    assert await conversation.contents() == ["Hello", "first"]


async def test_another_token_finishes_nothing(conversation: Conversation) -> None:
    """The run goes on."""
    begun = await conversation.begin()
    with pytest.raises(LeaseLost):
        await conversation.finish(begun, said("not mine"), fencing_token=begun.fencing_token + 1)
    assert (await conversation.store.get_run(conversation.user_id, begun.run.run_id)).status is RunStatus.RUNNING
    assert await conversation.contents() == ["Hello"]


async def test_finishing_the_run_of_a_deleted_session_finds_nothing(conversation: Conversation) -> None:
    """Nor does it bring anything back."""
    begun = await conversation.begin()
    await conversation.store.delete_session(conversation.user_id, conversation.session_id)
    with pytest.raises(RunNotFound):
        await conversation.finish(begun, said("too late"))
    page = await conversation.store.list_session_ids(conversation.user_id, page_size=10, after=None)
    assert not page.session_ids


async def test_a_replys_own_id_is_kept(conversation: Conversation) -> None:
    """And finds the message."""
    await conversation.turn(reply=said("Hello to you", message_id="mine"))
    message = await conversation.store.get_message(conversation.user_id, conversation.session_id, "mine")
    assert message.content == "Hello to you"


async def test_an_id_that_the_session_has_already_is_refused(conversation: Conversation) -> None:
    """The run is as it was, and can be finished with another."""
    await conversation.turn(reply=said("first", message_id="mine"))
    begun = await conversation.begin()
    with pytest.raises(MessageIdExists) as refusal:
        await conversation.finish(begun, said("second", message_id="mine"), request_hash=b"1")
    assert refusal.value.metadata == {"message_id": "mine"}
    await conversation.finish(begun, said("second", message_id="mine too"), request_hash=b"2")


async def test_sessions_may_share_a_message_id(conversation: Conversation) -> None:
    """It is unique within its session alone."""
    for each in (conversation, conversation.another()):
        await each.turn(reply=said("Hello to you", message_id="m-1"))


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.FAILED])
async def test_a_question_comes_with_awaiting_input_alone(conversation: Conversation, status: RunStatus) -> None:
    """Any other end with one is refused, naming the field."""
    begun = await conversation.begin()
    with pytest.raises(InvalidField) as refusal:
        await conversation.finish(begun, status=status, opened_task=question())
    assert [violation.field for violation in refusal.value.violations] == ["opened_task"]


async def test_awaiting_input_comes_with_a_question(conversation: Conversation) -> None:
    """Without one there would be nothing to wait for."""
    with pytest.raises(InvalidField):
        await conversation.finish(await conversation.begin(), status=RunStatus.AWAITING_INPUT)
