"""What a store is asked to change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from services.storage.models import (
    ConflictPolicy,
    HitlTaskDraft,
    NewMessage,
    PendingHitlPolicy,
    RunError,
    RunStatus,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRun:
    """A turn to begin. An empty `session_id` stands for a new session.

    `message` is empty where `retries_run_id` names the run whose message is answered anew. `patience` is how
    long an ENQUEUE may wait for its turn before it is told its place.
    """

    user_id: str
    session_id: str
    message: str
    lease: timedelta
    request_id: str = ""
    request_hash: bytes = b""
    answers_task_id: str = ""
    pending_hitl_policy: PendingHitlPolicy = PendingHitlPolicy.ANSWER
    conflict_policy: ConflictPolicy = ConflictPolicy.REJECT
    patience: timedelta = timedelta(seconds=10)
    retries_run_id: str = ""
    max_context_messages: int = 0
    holder_id: str = ""
    title_if_new: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRun:
    """A turn to end. `status` is COMPLETED, AWAITING_INPUT, CANCELLED or FAILED.

    `request_hash` is of all that is finished with, the token included. In `metadata` a None at the top
    level removes its key.
    """

    user_id: str
    run_id: str
    fencing_token: int
    request_hash: bytes
    status: RunStatus
    reply: NewMessage | None = None
    metadata: Mapping[str, Any]
    opened_task: HitlTaskDraft | None = None
    error: RunError | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSession:
    """A whole history to replace a session's with. In `metadata` a None at the top level removes its key.

    `expected_revision` None: whatever the session is at; 0: it must not exist. So in every write.
    """

    user_id: str
    session_id: str
    messages: Sequence[NewMessage]
    metadata: Mapping[str, Any]
    expected_revision: int | None = None
    request_id: str = ""
    request_hash: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendMessages:
    """1 to 1,000 messages for a session's end."""

    user_id: str
    session_id: str
    messages: Sequence[NewMessage]
    expected_revision: int | None = None
    request_id: str = ""
    request_hash: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSession:
    """What to change of a session; None leaves a part as it is.

    An empty title falls back to the session_id. `expire_time` counts where `sets_expire_time`: None removes
    it. In `metadata` a None at the top level removes its key.
    """

    user_id: str
    session_id: str
    title: str | None = None
    note: str | None = None
    note_through_position: int = 0
    sets_expire_time: bool = False
    expire_time: datetime | None = None
    metadata: Mapping[str, Any] | None = None
    expected_revision: int | None = None
    request_id: str = ""
    request_hash: bytes = b""
