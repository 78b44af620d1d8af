"""The port over PostgreSQL, put together."""

from functools import partial

from services.runtime.errors import ServiceError
from services.storage.errors import Contention, DatabaseUnavailable
from services.storage.models import HitlState, HitlTask, Message, Run, Session
from services.storage.store.base import (
    BeginRun,
    BegunRun,
    ConversationStorage,
    FinishedRun,
    FinishRun,
    HitlTaskCursor,
    HitlTaskPage,
    LoadedSession,
    MessagePage,
    SessionCursor,
    SessionIdPage,
    SessionPage,
)
from services.storage.store.postgres import begin, finish, hitl_tasks, messages, runs, sessions
from services.storage.store.postgres.database import Database, PostgresLimits, unlimited_engine
from services.storage.store.postgres.migrate import migrate
from services.storage.store.postgres.requests import HASH_KEY, RequestRecord

_BEGIN_ATTEMPTS = 3


class PostgresConversationStorage(ConversationStorage):
    """Opened by `open`; every connection goes with `close`."""

    def __init__(self, database: Database, *, hash_key: bytes):
        self._database = database
        self._hash_key = hash_key

    @classmethod
    async def open(cls, url: str, *, limits: PostgresLimits | None = None) -> "PostgresConversationStorage":
        """Brings the tables to this version first. Raises DatabaseUnavailable."""
        limits = limits or PostgresLimits()
        async with unlimited_engine(url, limits) as engine:
            await migrate(engine)
        database = Database(url, limits)
        try:
            hash_key = (await database.statement(HASH_KEY, {}))[0].key
        except BaseException:
            await database.close()
            raise
        return cls(database, hash_key=hash_key)

    async def check(self) -> None:
        try:
            takes_writes = await self._database.takes_writes()
        except ServiceError as error:
            raise DatabaseUnavailable from error
        if not takes_writes:
            raise DatabaseUnavailable

    async def close(self) -> None:
        await self._database.close()

    async def begin_run(self, request: BeginRun) -> BegunRun:
        record = self._record(request.user_id, request.request_id, method="BeginRun", request_hash=request.request_hash)
        work = partial(begin.begin_run, request=request, record=record)
        for _ in range(_BEGIN_ATTEMPTS):
            try:
                return await self._database.transaction(work)
            except runs.ExpiredRunFound as found:
                # Its end is a change of its own: it stands, whatever becomes of this request.
                end = partial(runs.end_expired_run, user_id=request.user_id, session_id=found.session_id)
                await self._database.transaction(end)
        raise Contention

    async def renew_run(self, user_id: str, run_id: str, *, fencing_token: int) -> Run:
        return await runs.renew_run(self._database, user_id, run_id, fencing_token=fencing_token)

    async def finish_run(self, request: FinishRun) -> FinishedRun:
        return await self._database.transaction(partial(finish.finish_run, request=request))

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
        return await self._database.transaction(
            partial(sessions.delete_session, user_id=user_id, session_id=session_id, record=record)
        )

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

    def _record(self, user_id: str, request_id: str, *, method: str, request_hash: bytes) -> RequestRecord | None:
        if not request_id:
            return None
        return RequestRecord.of(user_id, request_id, method=method, request_hash=request_hash, key=self._hash_key)
