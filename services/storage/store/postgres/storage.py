"""The port over PostgreSQL, put together."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from services.runtime.errors import ServiceError
from services.storage.errors import Contention, DatabaseUnavailable
from services.storage.models import ConflictPolicy, HitlState, HitlTask, Message, Run, RunEvent, Session
from services.storage.store.base import ConversationStorage, SessionsDeleted
from services.storage.store.commands import AppendMessages, BeginRun, FinishRun, SaveSession, UpdateSession
from services.storage.store.events import NoEventLog, RunEventLog
from services.storage.store.postgres import (
    append,
    begin,
    delete_messages,
    end,
    finish,
    hitl_tasks,
    messages,
    runs,
    save,
    sessions,
    turns,
    update,
    user_data,
    withdraw,
)
from services.storage.store.postgres.bell import Bell
from services.storage.store.postgres.database import Database, PostgresLimits
from services.storage.store.postgres.guards import TryAgain
from services.storage.store.postgres.migrate import migrate
from services.storage.store.postgres.requests import HASH_KEY, RequestRecord
from services.storage.store.postgres.session_lines import SessionLines
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
from services.storage.store.unbroken import UnbrokenWork

T = TypeVar("T")

_ATTEMPTS = 5
# As a rule the events are gone by then. Where not, the caller need not wait for a log that is slow.
_FORGETTING_WAIT_S = 0.05


class PostgresConversationStorage(ConversationStorage):
    """Opened by `open`; every connection goes with `close`."""

    def __init__(self, database: Database, *, hash_key: bytes, events: RunEventLog, lines: SessionLines):
        self._database = database
        self._hash_key = hash_key
        self._events = events
        self._bell = Bell()
        self._lines = lines
        self._deletions = UnbrokenWork()

    @classmethod
    async def open(
        cls, url: str, *, limits: PostgresLimits | None = None, events: RunEventLog | None = None
    ) -> "PostgresConversationStorage":
        """Brings the tables to this version first. Raises DatabaseUnavailable.

        `events` is the log that runs are ended with where their holders died; it stays its opener's to close.
        """
        limits = limits or PostgresLimits()
        await migrate(url, limits)
        database = Database(url, limits)
        try:
            hash_key = (await database.rows(HASH_KEY, {}))[0].key
        except BaseException:
            await database.close()
            raise
        lines = SessionLines(wait_s=limits.lock_timeout_s, answers=database.answers)
        return cls(database, hash_key=hash_key, events=events or NoEventLog(), lines=lines)

    async def check(self) -> None:
        try:
            takes_writes = await self._database.takes_writes()
        except ServiceError as error:
            raise DatabaseUnavailable from error
        if not takes_writes:
            raise DatabaseUnavailable

    async def close(self) -> None:
        await self._database.close()
        await self._deletions.close()

    async def begin_run(self, request: BeginRun) -> BegunRun:
        record = self._record(request.user_id, request.request_id, method="BeginRun", request_hash=request.request_hash)
        turns.check_request(request)
        if request.session_id and request.conflict_policy is not ConflictPolicy.REJECT:
            return await turns.begin_in_turn(
                self._database, self._events, request, record=record, bell=self._bell, lines=self._lines
            )
        # In a session without a name there is nobody to wait for.
        work = partial(begin.begin_run, request=request, record=record)
        attempt = partial(self._database.transaction, work)
        if not request.session_id:
            return await self._settled(attempt, user_id=request.user_id)
        return await self._in_turn(attempt, request.user_id, request.session_id)

    async def renew_run(self, user_id: str, run_id: str, *, fencing_token: int) -> Run:
        return await runs.renew_run(self._database, user_id, run_id, fencing_token=fencing_token)

    async def finish_run(self, request: FinishRun) -> FinishedRun:
        # The session is not known yet; those who ask for one run's end stand in a line of their own.
        async with self._lines.in_turn(request.user_id, f"run {request.run_id}"):
            finished = await self._database.transaction(partial(finish.finish_run, request=request))
        self._bell.ring(request.user_id, finished.run.session_id)
        return finished

    async def get_run(self, user_id: str, run_id: str) -> Run:
        return await runs.get_run(self._database, user_id, run_id)

    async def load_session(
        self, user_id: str, session_id: str, *, max_messages: int, include_traces: bool, max_bytes: int
    ) -> LoadedSession:
        return await messages.load_session(
            self._database,
            user_id,
            session_id,
            max_messages=max_messages,
            include_traces=include_traces,
            max_bytes=max_bytes,
        )

    async def get_session(self, user_id: str, session_id: str) -> Session:
        return await sessions.get_session(self._database, user_id, session_id)

    async def list_sessions(
        self, user_id: str, *, page_size: int, after: SessionCursor | None, full: bool, max_bytes: int
    ) -> SessionPage:
        return await sessions.list_sessions(
            self._database, user_id, page_size=page_size, after=after, full=full, max_bytes=max_bytes
        )

    async def list_session_ids(self, user_id: str, *, page_size: int, after: SessionCursor | None) -> SessionIdPage:
        return await sessions.list_session_ids(self._database, user_id, page_size=page_size, after=after)

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
        return await messages.list_messages(
            self._database,
            user_id,
            session_id,
            page_size=page_size,
            after=after,
            descending=descending,
            include_traces=include_traces,
            max_bytes=max_bytes,
        )

    async def get_message(self, user_id: str, session_id: str, message_id: str) -> Message:
        return await messages.get_message(self._database, user_id, session_id, message_id)

    async def delete_session(
        self, user_id: str, session_id: str, *, request_id: str = "", request_hash: bytes = b""
    ) -> int:
        record = self._record(user_id, request_id, method="DeleteSession", request_hash=request_hash)
        work = partial(sessions.delete_session, user_id=user_id, session_id=session_id, record=record)

        async def delete() -> int:
            deleted = await self._database.transaction(work)
            self._bell.ring(user_id, session_id)
            await self._forget_events(user_id, deleted.run_ids)
            return deleted.message_count

        # A repeat does not learn which runs there were.
        return await self._deletions.run(delete())

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
        return await hitl_tasks.list_hitl_tasks(
            self._database,
            user_id,
            session_id=session_id,
            state=state,
            page_size=page_size,
            after=after,
            max_bytes=max_bytes,
        )

    async def get_hitl_task(self, user_id: str, task_id: str) -> HitlTask:
        return await hitl_tasks.get_hitl_task(self._database, user_id, task_id)

    async def append_run_events(
        self, user_id: str, run_id: str, *, fencing_token: int, events: Sequence[RunEvent]
    ) -> AppendedEvents:
        return await runs.append_run_events(
            self._database, self._events, user_id, run_id, fencing_token=fencing_token, events=events
        )

    async def list_runs(self, user_id: str, session_id: str, *, page_size: int, after: RunCursor | None) -> RunPage:
        return await runs.list_runs(self._database, user_id, session_id, page_size=page_size, after=after)

    async def cancel_run(self, user_id: str, run_id: str) -> Run:
        run = await end.cancel_run(self._database, self._events, user_id, run_id)
        self._bell.ring(user_id, run.session_id)
        return run

    async def save_session(self, request: SaveSession) -> Session:
        record = self._record(
            request.user_id, request.request_id, method="SaveSession", request_hash=request.request_hash
        )
        work = partial(save.save_session, request=request, record=record)
        return await self._in_turn(partial(self._database.transaction, work), request.user_id, request.session_id)

    async def append_messages(self, request: AppendMessages) -> AppendedMessages:
        record = self._record(
            request.user_id, request.request_id, method="AppendMessages", request_hash=request.request_hash
        )
        attempt = partial(append.append_messages, self._database, request, record=record)
        return await self._in_turn(attempt, request.user_id, request.session_id)

    async def update_session(self, request: UpdateSession) -> Session:
        record = self._record(
            request.user_id, request.request_id, method="UpdateSession", request_hash=request.request_hash
        )
        attempt = partial(update.update_session, self._database, request, record=record)
        return await self._in_turn(attempt, request.user_id, request.session_id)

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
        record = self._record(user_id, request_id, method="DeleteMessages", request_hash=request_hash)
        work = partial(
            delete_messages.delete_messages,
            user_id=user_id,
            session_id=session_id,
            after_position=after_position,
            expected_revision=expected_revision,
            record=record,
        )
        return await self._in_turn(partial(self._database.transaction, work), user_id, session_id)

    async def delete_user_data(
        self,
        user_id: str,
        *,
        request_id: str = "",
        request_hash: bytes = b"",
        on_deleted: SessionsDeleted | None = None,
    ) -> int:
        async def tell(deleted: user_data.DeletedBatch) -> None:
            await self._forget_events(user_id, deleted.run_ids)
            if on_deleted is not None:
                await on_deleted(deleted.session_ids)

        record = self._record(user_id, request_id, method="DeleteUserData", request_hash=request_hash)
        return await user_data.delete_user_data(
            self._database, user_id, record=record, unbroken=self._deletions, tell=tell
        )

    async def user_version(self, user_id: str) -> UserVersion:
        return await sessions.user_version(self._database, user_id)

    async def cancel_hitl_task(
        self, user_id: str, task_id: str, *, request_id: str = "", request_hash: bytes = b""
    ) -> HitlTask:
        record = self._record(user_id, request_id, method="CancelHitlTask", request_hash=request_hash)
        work = partial(withdraw.cancel_hitl_task, user_id=user_id, task_id=task_id, record=record)
        return await self._settled(partial(self._database.transaction, work), user_id=user_id)

    async def _forget_events(self, user_id: str, run_ids: Sequence[str]) -> None:
        """Of runs whose deletion is committed: what was not must not lose its events."""
        if run_ids:
            await self._deletions.begin(self._events.forget(user_id, run_ids), wait_s=_FORGETTING_WAIT_S)

    async def _in_turn(self, attempt: Callable[[], Awaitable[T]], user_id: str, session_id: str) -> T:
        async with self._lines.in_turn(user_id, session_id):
            return await self._settled(attempt, user_id=user_id)

    async def _settled(self, attempt: Callable[[], Awaitable[T]], *, user_id: str) -> T:
        """Begins anew while what stands in the way can be put out of it."""
        for _ in range(_ATTEMPTS):
            try:
                return await attempt()
            except TryAgain:
                continue
            except runs.ExpiredRunFound as found:
                # Its end is a change of its own: it stands, whatever becomes of this request.
                await end.end_expired(self._database, self._events, user_id=user_id, session_id=found.session_id)
        raise Contention

    def _record(self, user_id: str, request_id: str, *, method: str, request_hash: bytes) -> RequestRecord | None:
        if not request_id:
            return None
        return RequestRecord.of(user_id, request_id, method=method, request_hash=request_hash, key=self._hash_key)
