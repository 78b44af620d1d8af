"""The port that every store of conversations implements.

What holds for each method:

- `user_id` owns what it names. What is another user's is to be told apart in no way from what does not exist.
- A write is one transaction: on any error nothing of it is stored. Done means committed.
- A read is one whole state that was committed, and never older than a write acknowledged before it began.
- Times of leases and expiries are taken from the store's own clock, never from the caller's.
- A question whose `expire_time` has come is EXPIRED wherever it is seen, and is no session's pending one.
- Arguments have been validated by the caller: text holds no NUL, sizes are within the API's limits, page
  sizes are 1 or more.
- Besides what a method names, each may raise DatabaseUnavailable (nothing is known of a write's fate: a
  repeat with the same request_id or token finds out), Overloaded, Contention or TimeLimit (nothing was
  written).

A write that takes a `request_id` takes effect once for (user_id, method, request_id) within a day: the same
id with the same `request_hash` changes nothing and returns the first result, with the session as it is by
now; with another hash it raises RequestIdReused. An empty request_id makes no such promise. A failed call
leaves no record. The record outlives the session that it speaks of: a repeat then raises SessionDeleted.
`request_hash` is of what the caller asked for alone: nothing that the service made up, and no holder_id.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from services.storage.models import (
    HitlState,
    HitlTask,
    HitlTaskDraft,
    Message,
    NewMessage,
    PendingHitlPolicy,
    Run,
    RunError,
    RunStatus,
    Session,
    Usage,
)

CONTEXT_MAX_BYTES = 2 * 1024 * 1024
"""Of the messages that a begun run starts with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRun:
    """A turn to begin. An empty `session_id` stands for a new session."""

    user_id: str
    session_id: str
    message: str
    lease: timedelta
    request_id: str = ""
    request_hash: bytes = b""
    answers_task_id: str = ""
    pending_hitl_policy: PendingHitlPolicy = PendingHitlPolicy.ANSWER
    max_context_messages: int = 0
    holder_id: str = ""
    title_if_new: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRun:
    """`fencing_token`, `context` and `claimed_task` are the holder's; anyone else gets 0, () and None."""

    run: Run
    session: Session
    already_begun: bool
    is_holder: bool
    fencing_token: int
    context: Sequence[Message]
    context_truncated: bool
    claimed_task: HitlTask | None


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
class FinishedRun:
    run: Run
    session: Session
    reply: Message | None
    opened_task: HitlTask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSession:
    """`truncated` where messages older than these were left out."""

    session: Session
    messages: Sequence[Message]
    truncated: bool


@dataclass(frozen=True, slots=True)
class SessionCursor:
    """A place in a user's list of sessions: after the one of this time and id."""

    update_time: datetime
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """`next` is None on the last page; so in every page."""

    sessions: Sequence[Session]
    next: SessionCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionIdPage:
    session_ids: Sequence[str]
    next: SessionCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """`next` is the position of the page's last message; `revision` is the session's that was read."""

    messages: Sequence[Message]
    next: int | None
    revision: int


@dataclass(frozen=True, slots=True)
class HitlTaskCursor:
    """A place in a list of questions: after the one of this time and id."""

    create_time: datetime
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HitlTaskPage:
    tasks: Sequence[HitlTask]
    next: HitlTaskCursor | None


class ConversationStorage(ABC):
    """Sessions, their messages, runs and questions. See the module for what holds for every method.

    Every `max_bytes` bounds what a result holds, counted as its texts, traces and states in UTF-8 with a
    little for the rest; the first item is returned however large it is.
    """

    @abstractmethod
    async def check(self) -> None:
        """Returns where the store answers and takes writes, however busy it is.

        Raises DatabaseUnavailable, and nothing else.
        """

    @abstractmethod
    async def close(self) -> None:
        """Lets go of every connection. Must be called once, after the last call has returned."""

    @abstractmethod
    async def begin_run(self, request: BeginRun) -> BegunRun:
        """Takes the session's lease, stores the message and claims the question that it answers.

        The session comes into being where there is none, and takes `title_if_new` while it has no title of
        its own. The message is stored as HUMAN and COMPLETE after the session's last; the revision grows by
        one; the fencing token is greater than any that the session has given.

        A run there whose lease has run out is ended first: FAILED with HOLDER_LOST, its claimed question
        PENDING again. A live one raises RunInProgress.

        With `answers_task_id` the question is claimed, where it is this session's and PENDING; otherwise
        raises HitlTaskNotFound or HitlTaskNotPending, before any RunInProgress. Without it a question that
        waits is claimed, CANCELLED, or raises HitlTaskPending, by `pending_hitl_policy`. Of any number of
        answers at once, exactly one claims.

        The context is of the newest `max_context_messages` messages before this one, oldest first, of any
        type and status, without traces, within CONTEXT_MAX_BYTES; `context_truncated` where only the bytes
        left some out.

        A repeat returns `already_begun`; it is the holder's where `holder_id` is not empty and the run's own,
        and the run is still RUNNING.
        """

    @abstractmethod
    async def renew_run(self, user_id: str, run_id: str, *, fencing_token: int) -> Run:
        """Lets the lease hold for its whole length from now on.

        A lease that has run out is renewed as well, as long as nobody has ended the run. Raises RunNotFound;
        LeaseLost where the token is not the run's, or the run is not RUNNING.
        """

    @abstractmethod
    async def finish_run(self, request: FinishRun) -> FinishedRun:
        """Stores the reply, changes the session, opens or settles a question, and frees the lease.

        The reply follows the session's last message; its status follows the run's: COMPLETE, AWAITING_INPUT,
        STOPPED or FAILED. The revision grows by one. Metadata is merged key by key at the top level. A claimed
        question becomes ANSWERED with the run's message as its answer; where the run is CANCELLED or FAILED
        it is PENDING again, with its old `expire_time`. An opened one waits until `expire_after` from now.

        Again with the same token and hash it changes nothing and returns the first result, with the session
        as it is by now. Raises RunNotFound, also where the session was deleted; LeaseLost where the token is
        not the run's, or the run has ended otherwise; MessageIdExists; InvalidField where the merged metadata
        is past its limits, or where AWAITING_INPUT comes without a question or another status with one.
        """

    @abstractmethod
    async def get_run(self, user_id: str, run_id: str) -> Run:
        """Raises RunNotFound."""

    @abstractmethod
    async def load_session(
        self, user_id: str, session_id: str, *, max_messages: int, include_traces: bool, max_bytes: int
    ) -> LoadedSession:
        """The session with its newest `max_messages` messages (0: all), oldest first.

        Within `max_bytes` for the messages, without a gap. Raises SessionNotFound.
        """

    @abstractmethod
    async def get_session(self, user_id: str, session_id: str) -> Session:
        """Raises SessionNotFound."""

    @abstractmethod
    async def list_sessions(
        self, user_id: str, *, page_size: int, after: SessionCursor | None, full: bool, max_bytes: int
    ) -> SessionPage:
        """A user's sessions, the last changed first, then by session_id.

        Unless `full`, `note` is "" and `metadata` empty, and neither is read. An unknown user has none.
        """

    @abstractmethod
    async def list_session_ids(self, user_id: str, *, page_size: int, after: SessionCursor | None) -> SessionIdPage:
        """The ids alone, in the order of list_sessions."""

    @abstractmethod
    async def list_messages(
        self,
        user_id: str,
        session_id: str,
        *,
        page_size: int,
        after: int | None,
        descending: bool,
        include_traces: bool,
        max_bytes: int,
    ) -> MessagePage:
        """Messages in order of position, after the position `after` in the direction asked for.

        None stands for the start of it. Raises SessionNotFound.
        """

    @abstractmethod
    async def get_message(self, user_id: str, session_id: str, message_id: str) -> Message:
        """One message, with its trace. Raises SessionNotFound, MessageNotFound."""

    @abstractmethod
    async def delete_session(
        self, user_id: str, session_id: str, *, request_id: str = "", request_hash: bytes = b""
    ) -> int:
        """Deletes the session with its messages, runs and questions; returns how many messages it had.

        A run under way finds nothing from then on. A later session of the same id has another uid. Raises
        SessionNotFound.
        """

    @abstractmethod
    async def list_hitl_tasks(
        self,
        user_id: str,
        *,
        session_id: str = "",
        state: HitlState | None = None,
        page_size: int,
        after: HitlTaskCursor | None,
        max_bytes: int,
    ) -> HitlTaskPage:
        """A user's questions, oldest first, then by task_id; of one session, and of one state, where given."""

    @abstractmethod
    async def get_hitl_task(self, user_id: str, task_id: str) -> HitlTask:
        """Raises HitlTaskNotFound."""
