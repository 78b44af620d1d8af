"""What a store gives back, and the places in lists that a page begins after."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from services.storage.models import (
    HitlTask,
    Message,
    Run,
    Session,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRun:
    """`fencing_token`, `human_message`, `context` and `claimed_task` are the holder's; anyone else gets none.

    Of a run that is QUEUED there are `run`, `session` and `queued_ahead`: how many come before it, the one
    under way included.
    """

    run: Run
    session: Session
    already_begun: bool
    is_holder: bool
    fencing_token: int
    context: Sequence[Message]
    context_truncated: bool
    claimed_task: HitlTask | None
    human_message: Message | None = None
    queued_ahead: int = 0

    @classmethod
    def without_hold(cls, run: Run, session: Session, *, already_begun: bool, queued_ahead: int = 0) -> "BegunRun":
        """For whoever is not the run's holder, or is not yet."""
        return cls(
            run=run,
            session=session,
            already_begun=already_begun,
            is_holder=False,
            fencing_token=0,
            context=(),
            context_truncated=False,
            claimed_task=None,
            queued_ahead=queued_ahead,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    run: Run
    session: Session
    reply: Message | None
    opened_task: HitlTask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedMessages:
    """`is_repeat` where nothing was stored now: the messages are those of the first time."""

    session: Session
    messages: Sequence[Message]
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedMessages:
    session: Session
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedEvents:
    last_sequence: int
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class RunCursor:
    """A place in a session's list of runs: after the one of this time and id."""

    create_time: datetime
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    runs: Sequence[Run]
    next: RunCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserVersion:
    """What a user's list of sessions is at, and the store's time as it was asked.

    The same revision twice, of one user, means that in between no committed change showed in the list; that
    of a user deleted and made anew repeats none.
    """

    revision: int
    now: datetime


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
    """`next` is None on the last page; so in every page.

    `changes_time` is when time alone changes what the page shows, at the earliest; None: never.
    """

    sessions: Sequence[Session]
    next: SessionCursor | None
    changes_time: datetime | None = None


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
