"""A session's metadata is merged, key by key, and never past its limits."""

from typing import Any

import pytest

from services.runtime.errors import InvalidField
from services.storage.models import METADATA_MAX_BYTES, METADATA_MAX_KEYS, RunStatus, Session
from tests.conformance.conversation import Conversation, said


async def _merge(conversation: Conversation, metadata: dict[str, Any]) -> Session:
    finished = await conversation.finish(await conversation.begin(), metadata=metadata)
    stored = await conversation.store.get_session(conversation.user_id, conversation.session_id)
    assert stored == finished.session
    return stored


async def test_keys_are_added_replaced_and_kept(conversation: Conversation) -> None:
    """A key that the change does not name stays as it was."""
    await _merge(conversation, {"topic": "retention", "product": "Harbor"})
    session = await _merge(conversation, {"product": "Lighthouse", "rounds": 2})
    assert session.metadata == {"topic": "retention", "product": "Lighthouse", "rounds": 2}


async def test_none_removes_its_key(conversation: Conversation) -> None:
    """One that is not there may be removed as well."""
    await _merge(conversation, {"topic": "retention", "product": "Harbor"})
    assert (await _merge(conversation, {"topic": None, "unknown": None})).metadata == {"product": "Harbor"}


async def test_a_key_is_replaced_whole(conversation: Conversation) -> None:
    """Merging goes one level deep; a None below it is a value."""
    await _merge(conversation, {"filter": {"a": 1, "b": 2}})
    assert (await _merge(conversation, {"filter": {"a": None}})).metadata == {"filter": {"a": None}}


async def test_nothing_to_merge_leaves_the_metadata_as_it_is(conversation: Conversation) -> None:
    """A turn that brings none changes none."""
    await _merge(conversation, {"topic": "retention"})
    assert (await _merge(conversation, {})).metadata == {"topic": "retention"}


async def test_any_json_comes_back_as_it_was(conversation: Conversation) -> None:
    """Nested, empty, in any script, with quotes and escapes."""
    metadata = {
        "nested": {"list": [1, 2.5, True, None, "x", {"y": []}]},
        "empty": {},
        'quo"te\\': "tab\tnew\nline \u2028 é 保留 👩‍👩‍👧",
        "": "the empty key",
        "large": 2**53,
        "small": -1.5e-7,
    }
    assert (await _merge(conversation, metadata)).metadata == metadata


async def test_merged_metadata_may_not_outgrow_its_keys(conversation: Conversation) -> None:
    """The turn that would take it past the limit stores nothing."""
    await _merge(conversation, {f"key-{n}": n for n in range(METADATA_MAX_KEYS)})
    begun = await conversation.begin()
    with pytest.raises(InvalidField) as refusal:
        await conversation.finish(begun, said("lost?"), metadata={"one more": 1})
    assert [violation.field for violation in refusal.value.violations] == ["metadata"]
    assert "lost?" not in await conversation.contents()
    assert (await conversation.store.get_run(conversation.user_id, begun.run.run_id)).status is RunStatus.RUNNING


async def test_merged_metadata_may_not_outgrow_its_bytes(conversation: Conversation) -> None:
    """They are counted as UTF-8, over all keys."""
    await _merge(conversation, {"a": "é" * (METADATA_MAX_BYTES // 4)})
    with pytest.raises(InvalidField):
        await conversation.finish(await conversation.begin(), metadata={"b": "é" * (METADATA_MAX_BYTES // 4)})


async def test_keys_give_way_to_others_in_one_change(conversation: Conversation) -> None:
    """The limits are those of the outcome."""
    await _merge(conversation, {f"key-{n}": n for n in range(METADATA_MAX_KEYS)})
    session = await _merge(conversation, {"key-0": None, "one more": 1})
    assert len(session.metadata) == METADATA_MAX_KEYS
