"""A lease holds as long as its holder renews it."""

import pytest

from services.storage.errors import LeaseLost, RunNotFound
from services.storage.models import RunStatus
from tests.conformance.ageing import Ageing
from tests.conformance.conversation import LEASE, RUN_OUT, Conversation


async def test_renewing_lets_the_lease_hold_for_its_whole_length_again(
    conversation: Conversation, ageing: Ageing
) -> None:
    """From the moment of renewal, by the store's clock."""
    begun = await conversation.begin()
    await ageing.expire_lease(conversation.user_id, begun.run.run_id)
    renewed = await conversation.store.renew_run(
        conversation.user_id, begun.run.run_id, fencing_token=begun.fencing_token
    )
    assert renewed.lease_expire_time >= begun.run.create_time + LEASE
    assert renewed.status is RunStatus.RUNNING


async def test_renewing_changes_no_revision(conversation: Conversation) -> None:
    """A lease is nothing that a reader of the session sees."""
    begun = await conversation.begin()
    await conversation.store.renew_run(conversation.user_id, begun.run.run_id, fencing_token=begun.fencing_token)
    session = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert session == begun.session


async def test_another_token_renews_nothing(conversation: Conversation) -> None:
    """Older or newer."""
    begun = await conversation.begin()
    for token in (begun.fencing_token - 1, begun.fencing_token + 1):
        with pytest.raises(LeaseLost) as refusal:
            await conversation.store.renew_run(conversation.user_id, begun.run.run_id, fencing_token=token)
        assert refusal.value.metadata == {"run_id": begun.run.run_id}


async def test_a_finished_run_is_renewed_no_more(conversation: Conversation) -> None:
    """Its lease is free."""
    begun = await conversation.begin()
    await conversation.finish(begun)
    with pytest.raises(LeaseLost):
        await conversation.store.renew_run(conversation.user_id, begun.run.run_id, fencing_token=begun.fencing_token)


async def test_a_run_that_lost_its_session_is_renewed_no_more(conversation: Conversation) -> None:
    """Once another run has begun in its place."""
    lost = await conversation.begin(lease=RUN_OUT)
    await conversation.begin()
    with pytest.raises(LeaseLost):
        await conversation.store.renew_run(conversation.user_id, lost.run.run_id, fencing_token=lost.fencing_token)


async def test_an_unknown_run_is_not_found(conversation: Conversation) -> None:
    """Its id is told."""
    with pytest.raises(RunNotFound) as refusal:
        await conversation.store.renew_run(conversation.user_id, "nobody's", fencing_token=1)
    assert refusal.value.metadata == {"run_id": "nobody's"}
