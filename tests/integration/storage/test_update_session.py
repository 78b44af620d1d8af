"""UpdateSession over a channel: what the mask names, or what is set, is changed, and nothing else."""

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import NULL_VALUE, Value
from google.protobuf.timestamp_pb2 import Timestamp

from askback.storage.v1.session_pb2 import Session
from askback.storage.v1.session_service_pb2 import UpdateSessionRequest
from tests.integration.storage.harness import Storage, patiently, refused


async def _update(storage: Storage, user: str, session: dict[str, Any], *paths: str, **fields: Any) -> Session:
    request = UpdateSessionRequest(session=Session(user_id=user, session_id="s", **session), **fields)
    if paths:
        request.update_mask.CopyFrom(FieldMask(paths=paths))
    return (await storage.sessions.UpdateSession(request, timeout=20)).session


async def test_without_a_mask_what_is_set_is_changed(storage: Storage, other_storage: Storage, user: str) -> None:
    before = (await storage.append(user)).session
    expiry = Timestamp(seconds=4_000_000_000)
    updated = await _update(storage, user, {"title": "A title", "expire_time": expiry, "metadata": {"k": 1}})
    assert (updated.title, updated.expire_time, dict(updated.metadata)) == ("A title", expiry, {"k": 1})
    assert (updated.revision, updated.uid, updated.message_count) == (before.revision + 1, before.uid, 2)
    assert await other_storage.session(user) == updated


async def test_what_the_mask_does_not_name_stays(storage: Storage, user: str) -> None:
    await storage.append(user)
    await _update(storage, user, {"title": "A title", "metadata": {"k": 1}})
    updated = await _update(storage, user, {"title": "Another", "metadata": {"k": 2}}, "metadata")
    assert (updated.title, dict(updated.metadata)) == ("A title", {"k": 2})


async def test_what_the_mask_names_and_nothing_sets_is_removed(storage: Storage, user: str) -> None:
    await storage.append(user)
    await _update(storage, user, {"title": "A title", "expire_time": Timestamp(seconds=4_000_000_000)})
    updated = await _update(storage, user, {}, "title", "expire_time")
    assert updated.title == "s"
    assert not updated.HasField("expire_time")


async def test_metadata_is_merged_and_null_removes(storage: Storage, user: str) -> None:
    await storage.append(user)
    await _update(storage, user, {"metadata": {"a": 1, "b": {"deep": [1, None]}}})
    session = Session(user_id=user, session_id="s")
    session.metadata.update({"c": "three"})
    session.metadata.fields["a"].CopyFrom(Value(null_value=NULL_VALUE))
    updated = (await storage.sessions.UpdateSession(UpdateSessionRequest(session=session))).session
    assert dict(updated.metadata) == {"b": {"deep": [1, None]}, "c": "three"}


async def test_a_hundred_changes_of_metadata_at_once_lose_no_key(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    await storage.append(user)
    replicas = (storage, other_storage)

    async def add_key(n: int) -> None:
        await patiently(lambda: _update(replicas[n % 2], user, {"metadata": {f"k{n}": n}}))

    await asyncio.gather(*map(add_key, range(100)))
    session = await storage.session(user)
    assert dict(session.metadata) == {f"k{n}": n for n in range(100)}
    assert session.revision == 101


async def test_a_note_alone_moves_neither_revision_nor_time_and_never_goes_back(storage: Storage, user: str) -> None:
    before = (await storage.append(user)).session
    noted = await _update(storage, user, {"note": "newer", "note_through_position": 2})
    assert (noted.note, noted.note_through_position) == ("newer", 2)
    assert (noted.revision, noted.update_time) == (before.revision, before.update_time)
    for position in (1, 2):
        late = await _update(storage, user, {"note": "late", "note_through_position": position})
        assert (late.note, late.note_through_position) == ("newer", 2)


async def test_a_session_is_changed_while_a_run_holds_it(storage: Storage, user: str) -> None:
    begun = await storage.begin(user)
    assert (await _update(storage, user, {"title": "While it runs"})).active_run_id == begun.run.run_id
    assert (await storage.finish(begun)).session.title == "While it runs"


async def test_an_update_that_is_sent_again_takes_effect_once(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    await storage.append(user)
    await _update(storage, user, {"title": "first"}, request_id="r")
    await _update(storage, user, {"title": "second"})
    again = await _update(other_storage, user, {"title": "first"}, request_id="r")
    assert (again.title, again.revision) == ("second", 3)
    refusal = await refused(_update(other_storage, user, {"title": "third"}, request_id="r"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED")


async def test_an_update_at_another_revision_changes_nothing(storage: Storage, user: str) -> None:
    await storage.append(user)
    refusal = await refused(_update(storage, user, {"title": "lost"}, expected_revision=7))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    assert refusal.metadata == {"expected_revision": "7", "revision": "1"}
    assert (await _update(storage, user, {"title": "kept"}, expected_revision=1)).revision == 2


async def test_metadata_past_its_limits_once_merged_is_refused(storage: Storage, user: str) -> None:
    await storage.append(user)
    await _update(storage, user, {"metadata": {"a": "x" * 20_000}})
    refusal = await refused(_update(storage, user, {"title": "lost", "metadata": {"b": "x" * 20_000}}))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert refusal.fields[0].endswith("metadata")
    assert (await storage.session(user)).title == "s"


@pytest.mark.parametrize("away", [timedelta(days=-1), timedelta(days=1)])
async def test_any_time_may_be_a_sessions_last(storage: Storage, user: str, away: timedelta) -> None:
    before = (await storage.append(user)).session
    expiry = Timestamp(seconds=before.update_time.seconds + round(away.total_seconds()))
    assert (await _update(storage, user, {"expire_time": expiry})).expire_time == expiry
