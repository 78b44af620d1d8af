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
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from services.storage.models import (
    HitlState,
    HitlTask,
    Message,
    Run,
    RunEvent,
    Session,
)
from services.storage.store.commands import (
    AppendMessages,
    BeginRun,
    FinishRun,
    SaveSession,
    UpdateSession,
)
from services.storage.store.results import (
    AppendedEvents,
    AppendedMessages,
    BegunRun,
    DeletedMessages,
    FinishedRun,
    HitlTaskCursor,
    HitlTaskPage,
    LoadedSession,
    MessagePage,
    RunCursor,
    RunPage,
    SessionCursor,
    SessionIdPage,
    SessionPage,
    UserVersion,
)

MESSAGE_OVERHEAD_BYTES = 64
"""What a message counts for beside its texts, its ids and its trace, wherever bytes are bounded."""
CONTEXT_MAX_BYTES = 2 * 1024 * 1024
"""Of the messages that a begun run starts with."""
QUEUE_PLACE_KEPT = timedelta(seconds=15)
"""How long a place in a session's queue is kept for whoever does not ask for it."""
HOLDER_GRACE = timedelta(seconds=2)
"""How long the holder of a run that is to give way has to end it by itself."""

SessionsDeleted = Callable[[Sequence[str]], Awaitable[None]]
"""Is told of sessions of one user by their ids."""


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
        PENDING again, what its event log has of the reply stored as FAILED. A live one is met by
        `conflict_policy`:

        - REJECT raises RunInProgress; so it does where others wait for their turn.
        - ENQUEUE waits, at most for `patience`, then returns the run QUEUED, of which nothing else is stored
          yet. Turns come in order of arrival. The same request_id again keeps the place and waits on; a place
          that nobody asks for within QUEUE_PLACE_KEPT is lost, and the request begins anew when it comes
          again. A queued run that was cancelled stays so.
        - INTERRUPT asks the holder to stop, waits for HOLDER_GRACE, and then ends the run itself: CANCELLED
          with RUN_REPLACED, what its log has of the reply stored as STOPPED, its claimed question PENDING
          again. It goes before those that wait.
        - ROLLBACK does the same, and takes the old turn back, in the transaction that begins the new one: its
          messages go, and a question that it opened is CANCELLED.

        A question opened while a message waited for its turn is none that its author had seen: it is
        CANCELLED, not claimed.

        With `retries_run_id` the message is that of the session's last turn, which FAILED or was CANCELLED:
        what followed it is taken back, and the question that it answered is claimed again where it is PENDING.
        Raises RunNotFound; RunNotRetryable where it ended otherwise, or is not the session's last.

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
    async def append_run_events(
        self, user_id: str, run_id: str, *, fencing_token: int, events: Sequence[RunEvent]
    ) -> AppendedEvents:
        """Adds to the run's event log, in order of sequence; one that is stored already is passed over.

        Also after the run's end, by the holder that finished it, until the last event. Raises RunNotFound;
        LeaseLost where the token is not the run's, it was ended by another, or the log has its last event;
        EventLogUnavailable, where it may hold some of them or all.
        """

    @abstractmethod
    async def get_run(self, user_id: str, run_id: str) -> Run:
        """Raises RunNotFound."""

    @abstractmethod
    async def list_runs(self, user_id: str, session_id: str, *, page_size: int, after: RunCursor | None) -> RunPage:
        """A session's runs, the newest first, then by run_id; those that wait included. Raises SessionNotFound."""

    @abstractmethod
    async def cancel_run(self, user_id: str, run_id: str) -> Run:
        """Asks the holder to stop; where none lives, the run ends CANCELLED at once. Returns the run.

        A run that is QUEUED has no holder. One whose lease has run out keeps what its event log has of the
        reply, as STOPPED; its claimed question is PENDING again. A run that has ended stays as it is. Raises
        RunNotFound.
        """

    @abstractmethod
    async def save_session(self, request: SaveSession) -> Session:
        """Replaces the whole history, numbered anew from 1, and merges the metadata key by key.

        A message whose id is kept keeps its create_time, status, run and trace, unless the request sets
        them; a row that stays the same is not written. A question that waits is CANCELLED where its message is
        gone. The session comes into being where there is none. The revision grows by one. Raises
        RevisionMismatch; RunInProgress while a run holds the session; InvalidField where an id comes twice, or
        the merged metadata is past its limits.
        """

    @abstractmethod
    async def append_messages(self, request: AppendMessages) -> AppendedMessages:
        """Adds messages to the session's end, at a cost that does not grow with the history.

        The session comes into being with its first message. The revision grows by one. Raises
        RevisionMismatch, RunInProgress, MessageIdExists.
        """

    @abstractmethod
    async def update_session(self, request: UpdateSession) -> Session:
        """Changes what the request sets, also while a run holds the session. The revision grows by one.

        A note is taken where it goes through a later position than the one that is there, or both go
        through none, and otherwise passed over; it goes no further than the session does. A change of the
        note alone moves neither revision nor update_time. Raises SessionNotFound,
        RevisionMismatch; InvalidField where the merged metadata is past its limits.
        """

    @abstractmethod
    async def delete_messages(
        self,
        user_id: str,
        session_id: str,
        *,
        after_position: int,
        expected_revision: int | None = None,
        request_id: str = "",
        request_hash: bytes = b"",
    ) -> DeletedMessages:
        """Takes back the messages after a position; a question that waits among them is CANCELLED.

        The revision grows by one, unless there was nothing to take back. Raises SessionNotFound,
        RevisionMismatch, RunInProgress.
        """

    @abstractmethod
    async def delete_user_data(
        self,
        user_id: str,
        *,
        request_id: str = "",
        request_hash: bytes = b"",
        on_deleted: SessionsDeleted | None = None,
    ) -> int:
        """Deletes all that is kept of a user, in batches; returns how many sessions there were.

        Cut short, it is called again. What is left, to the end of its day, are records of requests: keyed
        hashes that keep a late repeat from bringing anything back. `on_deleted` is told of each batch once it
        is committed, even where the caller has given up by then, and must not fail.
        """

    @abstractmethod
    async def user_version(self, user_id: str) -> UserVersion:
        """What the user's list of sessions is at; a list read after it is no older."""

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

    @abstractmethod
    async def cancel_hitl_task(
        self, user_id: str, task_id: str, *, request_id: str = "", request_hash: bytes = b""
    ) -> HitlTask:
        """Withdraws a PENDING question; the session's revision grows by one. Raises HitlTaskNotFound,
        HitlTaskNotPending."""


class Upkeep(ABC):
    """What a store does by itself, a batch at a time, on any number of replicas at once.

    Each call takes one batch, of at most 1,000 rows, passes over what another holds, and returns how much it
    did: 0 means that there is nothing left to do for now. None makes a user's call fail, or wait for long.
    """

    @abstractmethod
    async def end_expired_runs(self) -> int:
        """Ends runs whose lease has run out, as begin_run does."""

    @abstractmethod
    async def drop_lost_places(self) -> int:
        """Removes queued runs that nobody has asked for within QUEUE_PLACE_KEPT."""

    @abstractmethod
    async def expire_hitl_tasks(self) -> int:
        """Writes down that questions are EXPIRED, which they are without it."""

    @abstractmethod
    async def delete_expired_sessions(self) -> int:
        """Deletes sessions whose time has come, as delete_session does; those that a run holds wait."""

    @abstractmethod
    async def delete_old_runs(self) -> int:
        """Deletes runs that ended long enough ago; a session's last stays."""

    @abstractmethod
    async def forget_requests(self) -> int:
        """Deletes the records of requests older than a day."""
