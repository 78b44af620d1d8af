"""One turn, as the agent sees it: what it was asked, what storage gave it, what it tells, how it ended."""

from dataclasses import dataclass, field
from enum import StrEnum

from services.agent.request_context import AskBack, RagStep
from services.agent.schemas import HitlTask, PendingHitlState, RagTrace
from services.agent.usage import Usage


class MessageType(StrEnum):
    HUMAN = "human"
    AI = "ai"
    SYSTEM = "system"
    TOOL = "tool"


class RunStatus(StrEnum):
    COMPLETED = "completed"
    AWAITING_INPUT = "awaiting_input"
    CANCELLED = "cancelled"
    FAILED = "failed"


class PendingHitlPolicy(StrEnum):
    """What a message without a task id means while a question waits."""

    ANSWER = "answer"
    REPLACE = "replace"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A user's message to the agent; empty strings mean not given."""

    user_id: str
    message: str
    session_id: str = ""
    request_id: str = ""
    answers_task_id: str = ""
    pending_hitl_policy: PendingHitlPolicy | None = None
    collection: str = ""


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    type: MessageType
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A run that this process holds, and what it needs to go on.

    `history` is the conversation before this turn, oldest first; `claimed` the question that the message
    answers, where there was one that can be gone on with.
    """

    user_id: str
    session_id: str
    run_id: str
    request_id: str
    fencing_token: int
    lease_s: float
    human_position: int
    human_message_id: str
    title: str
    note: str = ""
    history: list[HistoryMessage] = field(default_factory=list)
    claimed: PendingHitlState | None = None
    answered_task_id: str = ""


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """Why a turn FAILED: a gRPC status code, a reason of error_reason.proto, a text for developers."""

    code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ended, to be stored. `reply` is None where nothing was said."""

    status: RunStatus
    reply: str | None = None
    trace: RagTrace | None = None
    ask_back: AskBack | None = None
    failure: TurnFailure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class TurnStarted:
    turn: Turn


@dataclass(frozen=True, slots=True)
class SessionTitled:
    title: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    text: str


@dataclass(frozen=True, slots=True)
class TraceTold:
    trace: RagTrace


@dataclass(frozen=True, slots=True)
class AskedBack:
    task: HitlTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """The turn is stored. `ai_position` is 0 where nothing was said."""

    status: RunStatus
    failure: TurnFailure | None
    ai_position: int
    ai_message_id: str
    session_revision: int
    usage: Usage
    reply: str
    task: HitlTask | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing to say, still at work."""


TurnEvent = TurnStarted | SessionTitled | RagStep | ContentDelta | TraceTold | AskedBack | TurnFinished | Heartbeat
