"""What the storage service keeps, free of wire and database types.

The numbers of the enums are those of the API, and what the tables hold: they never change. UNKNOWN is what a
stored number is read as that this version does not know; it is never stored.
Times are aware and in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

METADATA_MAX_BYTES = 32 * 1024
"""Of a session's metadata as compact JSON in UTF-8, merged."""
METADATA_MAX_KEYS = 256
"""Of a session's metadata at its top level, merged."""


class MessageType(IntEnum):
    UNKNOWN = 0
    HUMAN = 1
    AI = 2
    SYSTEM = 3
    TOOL = 4


class MessageStatus(IntEnum):
    UNKNOWN = 0
    COMPLETE = 1
    STOPPED = 2
    FAILED = 3
    AWAITING_INPUT = 4


class RunStatus(IntEnum):
    UNKNOWN = 0
    QUEUED = 1
    RUNNING = 2
    COMPLETED = 3
    AWAITING_INPUT = 4
    CANCELLED = 5
    FAILED = 6


REPLY_STATUS = {
    RunStatus.COMPLETED: MessageStatus.COMPLETE,
    RunStatus.AWAITING_INPUT: MessageStatus.AWAITING_INPUT,
    RunStatus.CANCELLED: MessageStatus.STOPPED,
    RunStatus.FAILED: MessageStatus.FAILED,
}
"""How a run may end, and the status that its reply is stored with then."""


class PendingHitlPolicy(IntEnum):
    """What a message without a task id means while a question waits."""

    ANSWER = 1
    REPLACE = 2
    REJECT = 3


class ConflictPolicy(IntEnum):
    """What a new run does when its session already has one."""

    REJECT = 1
    ENQUEUE = 2
    INTERRUPT = 3
    ROLLBACK = 4


class HitlKind(IntEnum):
    UNKNOWN = 0
    CLARIFY = 1
    SCOPE_SELECT = 2


class HitlState(IntEnum):
    UNKNOWN = 0
    PENDING = 1
    CLAIMED = 2
    ANSWERED = 3
    EXPIRED = 4
    CANCELLED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation. `title` is never empty; "" in `active_run_id` and `pending_hitl_task_id` means none."""

    user_id: str
    session_id: str
    uid: str
    title: str
    revision: int
    message_count: int
    create_time: datetime
    update_time: datetime
    note: str = ""
    note_through_position: int = 0
    metadata: Mapping[str, Any]
    expire_time: datetime | None = None
    active_run_id: str = ""
    pending_hitl_task_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be stored; an empty `message_id` is made by the store.

    What is None or "" of status, time, run and trace is the store's to set: COMPLETE, now and nothing for a
    new message; for one that is kept under its id, whatever it has.
    """

    type: MessageType
    content: str
    message_id: str = ""
    status: MessageStatus | None = None
    create_time: datetime | None = None
    run_id: str = ""
    trace: bytes | None = None
    """An encoded RagTrace, opaque here; None: there is none."""
    extra_json: str = ""
    """The caller's JSON object, kept byte for byte; "": there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One stored entry of a conversation. `trace` is None too where a read leaves traces out."""

    position: int
    message_id: str
    type: MessageType
    status: MessageStatus
    content: str
    create_time: datetime
    run_id: str = ""
    trace: bytes | None = None
    extra_json: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """Why a run FAILED; `code` is a google.rpc.Code."""

    code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    input_tokens: int
    output_tokens: int
    model_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One turn of the agent. Positions are 0, and ids "", for what there is not, or not yet."""

    run_id: str
    user_id: str
    session_id: str
    request_id: str
    status: RunStatus
    human_position: int
    human_message_id: str
    lease_expire_time: datetime
    create_time: datetime
    answered_task_id: str = ""
    ai_position: int = 0
    ai_message_id: str = ""
    cancel_requested: bool = False
    error: RunError | None = None
    usage: Usage | None = None
    finish_time: datetime | None = None
    session_revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One entry of a run's log. `payload` is opaque; `reply_text` is the piece of the reply in it."""

    sequence: int
    payload: bytes
    last: bool = False
    reply_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitlTaskDraft:
    """A question as a run puts it. `resume_state` is an encoded HitlResumeState, opaque here."""

    original_question: str
    prompt: str
    options: tuple[str, ...]
    kind: HitlKind
    answers: tuple[str, ...]
    resume_state: bytes
    expire_after: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class HitlTask:
    """A question put to the user. `state` is EXPIRED from `expire_time` on, written or not."""

    task_id: str
    user_id: str
    session_id: str
    run_id: str
    original_question: str
    prompt: str
    options: tuple[str, ...]
    kind: HitlKind
    answers: tuple[str, ...]
    resume_state: bytes
    state: HitlState
    create_time: datetime
    expire_time: datetime
    resolve_time: datetime | None = None
    answer: str = ""
    answered_by_run_id: str = ""
