"""What the requests of all services have in common: hashes, enums, revisions, texts in a row."""

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import Message as WireMessage

from askback.storage.v1 import hitl_service_pb2, run_service_pb2, session_service_pb2
from services.storage.rpc.checks import Checks
from services.storage.rpc.fairness import Turns

MAX_MESSAGE_BYTES = 32_768
MAX_TITLE_BYTES = 1_024

_HASHED_AT_ONCE = 1_024 * 1_024

Choice = TypeVar("Choice", bound=IntEnum)

OfSession = (
    session_service_pb2.SaveSessionRequest
    | session_service_pb2.AppendMessagesRequest
    | session_service_pb2.LoadSessionRequest
    | session_service_pb2.GetSessionRequest
    | session_service_pb2.ListMessagesRequest
    | session_service_pb2.GetMessageRequest
    | session_service_pb2.DeleteMessagesRequest
    | session_service_pb2.DeleteSessionRequest
    | run_service_pb2.ListRunsRequest
)

TakesEffectOnce = (
    session_service_pb2.SaveSessionRequest
    | session_service_pb2.AppendMessagesRequest
    | session_service_pb2.DeleteMessagesRequest
    | session_service_pb2.UpdateSessionRequest
    | session_service_pb2.DeleteSessionRequest
    | session_service_pb2.DeleteUserDataRequest
    | hitl_service_pb2.CancelHitlTaskRequest
)

AtRevision = (
    session_service_pb2.SaveSessionRequest
    | session_service_pb2.AppendMessagesRequest
    | session_service_pb2.DeleteMessagesRequest
    | session_service_pb2.UpdateSessionRequest
)


def session_of(checks: Checks, request: OfSession) -> tuple[str, str]:
    return checks.name("user_id", request.user_id), checks.name("session_id", request.session_id)


def expected_revision(checks: Checks, request: AtRevision) -> int | None:
    if not request.HasField("expected_revision"):
        return None
    return checks.number("expected_revision", request.expected_revision, at_least=0)


def by_number(choices: type[Choice]) -> dict[int, Choice]:
    return {choice.value: choice for choice in choices if choice.value}


def texts(checks: Checks, field: str, values: Sequence[str], *, count: int, at_most: int) -> tuple[str, ...]:
    if len(values) > count:
        checks.refuse(field, f"must be at most {count} texts")
    return tuple(
        checks.text(f"{field}[{place}]", value, at_most=at_most, required=True)
        for place, value in enumerate(values[:count])
    )


def hash_of(asked: WireMessage) -> bytes:
    """The same for two that ask for the same, however their bytes were written."""
    return hashlib.sha256(asked.SerializeToString(deterministic=True)).digest()


def request_hash(request: TakesEffectOnce) -> bytes:
    """Of all but the request_id."""
    return hashlib.sha256(_without_its_id(request)).digest()


async def request_hash_in_turns(request: TakesEffectOnce, turns: Turns) -> bytes:
    """The same hash, of a request that may be large."""
    asked = memoryview(_without_its_id(request))
    digest = hashlib.sha256()
    for start in range(0, len(asked), _HASHED_AT_ONCE):
        digest.update(asked[start : start + _HASHED_AT_ONCE])
        await turns.pause()
    return digest.digest()


def _without_its_id(request: TakesEffectOnce) -> bytes:
    # Not a copy without it: a request may be large.
    request_id, request.request_id = request.request_id, ""
    encoded = request.SerializeToString(deterministic=True)
    request.request_id = request_id
    return encoded
