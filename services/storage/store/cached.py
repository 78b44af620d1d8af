"""A store with what is read again and again kept before it.

What is kept is never believed by itself: each read first asks the store what its session, or its user's list,
is at. So there is nothing to invalidate, and a lost, old or foreign value costs time, never truth.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from services.storage.models import HitlState, HitlTask, Message, Run, RunEvent, Session
from services.storage.store.base import ConversationStorage, SessionsDeleted
from services.storage.store.cache.counters import CacheCounters
from services.storage.store.cache.local import LocalCache
from services.storage.store.cache.messages import SHARED_FROM_MESSAGES, Local, MessageCache
from services.storage.store.cache.session_list import LIST_MAX_BYTES
from services.storage.store.cache.session_lists import SessionListCache
from services.storage.store.cache.shared import VALUE_KEPT_S, SharedCache
from services.storage.store.cache.window import WINDOW_MAX_MESSAGES, page_positions
from services.storage.store.commands import AppendMessages, BeginRun, FinishRun, SaveSession, UpdateSession
from services.storage.store.encoded import Codec
from services.storage.store.redis_connection import RedisConnection
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

LOCAL_MAX_BYTES = 36 * 1024 * 1024
"""Room for the newest messages of 64 sessions at their largest; read through, a process stays within 50 MiB more."""


class CachedConversationStorage(ConversationStorage):
    """Answers reads of a session's newest messages and of a user's first sessions without reading them anew.

    All else goes to the store within. `close` closes that too, but not the connection to Redis.
    """

    def __init__(
        self,
        inner: ConversationStorage,
        *,
        codec: Codec,
        redis: RedisConnection | None,
        local_max_bytes: int = LOCAL_MAX_BYTES,
        local_kept_s: float = VALUE_KEPT_S,
        shared_from_messages: int = SHARED_FROM_MESSAGES,
    ):
        self._inner = inner
        self._codec = codec
        self._shared = SharedCache(redis)
        self._local: Local = LocalCache(local_max_bytes, kept_s=local_kept_s)
        self._deletions = UnbrokenWork()
        self.counters = CacheCounters()
        self._messages = MessageCache(
            inner,
            codec,
            local=self._local,
            shared=self._shared,
            counters=self.counters,
            shared_from_messages=shared_from_messages,
        )
        self._lists = SessionListCache(inner, codec, local=self._local, shared=self._shared, counters=self.counters)

    @property
    def local_bytes(self) -> int:
        """What the layer within the process holds."""
        return self._local.memory_bytes

    @property
    def storing(self) -> int:
        """How many values are on their way to Redis."""
        return self._shared.storing

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            # Whatever becomes of one, the others are closed.
            stack.callback(self._local.close)
            # Those still under way end with the store.
            stack.push_async_callback(self._deletions.close)
            for close in (self._inner.close, self._shared.close, self._lists.close, self._messages.close):
                stack.push_async_callback(close)

    async def load_session(
        self, user_id: str, session_id: str, *, max_messages: int, include_traces: bool, max_bytes: int
    ) -> LoadedSession:
        session = await self._messages.look_up(user_id, session_id)
        if min(max_messages or session.message_count, session.message_count) <= WINDOW_MAX_MESSAGES:
            session, window = await self._messages.newest(session)
            if window is not None:
                loaded = window.newest(
                    session,
                    max_messages=max_messages,
                    include_traces=include_traces,
                    max_bytes=max_bytes,
                    codec=self._codec,
                )
                if loaded is not None:
                    return loaded
        self.counters.beyond += 1
        return await self._inner.load_session(
            user_id, session_id, max_messages=max_messages, include_traces=include_traces, max_bytes=max_bytes
        )

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
        session = await self._messages.look_up(user_id, session_id)
        wanted = page_positions(session.message_count, page_size=page_size, after=after, descending=descending)
        if not wanted or min(wanted[0], wanted[-1]) > session.message_count - WINDOW_MAX_MESSAGES:
            _, window = await self._messages.newest(session)
            if window is not None:
                page = window.page(
                    page_size=page_size,
                    after=after,
                    descending=descending,
                    include_traces=include_traces,
                    max_bytes=max_bytes,
                    codec=self._codec,
                )
                if page is not None:
                    return page
        self.counters.beyond += 1
        return await self._inner.list_messages(
            user_id,
            session_id,
            page_size=page_size,
            after=after,
            descending=descending,
            include_traces=include_traces,
            max_bytes=max_bytes,
        )

    async def list_sessions(
        self, user_id: str, *, page_size: int, after: SessionCursor | None, full: bool, max_bytes: int
    ) -> SessionPage:
        # Held are sessions that all fit LIST_MAX_BYTES; which of them fit fewer is not known.
        if after is None and max_bytes >= LIST_MAX_BYTES:
            first = await self._lists.first(user_id, full=full)
            if first is not None and (page := first.page(page_size, self._codec)) is not None:
                return page
        self.counters.beyond += 1
        return await self._inner.list_sessions(
            user_id, page_size=page_size, after=after, full=full, max_bytes=max_bytes
        )

    async def list_session_ids(self, user_id: str, *, page_size: int, after: SessionCursor | None) -> SessionIdPage:
        if after is None:
            first = await self._lists.first(user_id, full=False)
            if first is not None and (page := first.id_page(page_size)) is not None:
                return page
        self.counters.beyond += 1
        return await self._inner.list_session_ids(user_id, page_size=page_size, after=after)

    async def begin_run(self, request: BeginRun) -> BegunRun:
        begun = await self._inner.begin_run(request)
        if begun.human_message is not None and not begun.already_begun:
            self._messages.follow(begun.session, [begun.human_message])
        return begun

    async def finish_run(self, request: FinishRun) -> FinishedRun:
        finished = await self._inner.finish_run(request)
        # Told again, it may be of a session that others have changed since.
        if finished.run.session_revision == finished.session.revision:
            self._messages.follow(finished.session, [] if finished.reply is None else [finished.reply])
        return finished

    async def append_messages(self, request: AppendMessages) -> AppendedMessages:
        appended = await self._inner.append_messages(request)
        if not appended.is_repeat:
            self._messages.follow(appended.session, appended.messages)
        return appended

    async def delete_session(
        self, user_id: str, session_id: str, *, request_id: str = "", request_hash: bytes = b""
    ) -> int:
        async def delete() -> int:
            try:
                return await self._inner.delete_session(
                    user_id, session_id, request_id=request_id, request_hash=request_hash
                )
            finally:
                # Where it fails as well: a first try may have deleted what the second does not find.
                await self._forget(user_id, [session_id])

        return await self._deletions.run(delete())

    async def delete_user_data(
        self,
        user_id: str,
        *,
        request_id: str = "",
        request_hash: bytes = b"",
        on_deleted: SessionsDeleted | None = None,
    ) -> int:
        async def tell(session_ids: Sequence[str]) -> None:
            await self._forget(user_id, session_ids)
            if on_deleted is not None:
                await on_deleted(session_ids)

        try:
            return await self._inner.delete_user_data(
                user_id, request_id=request_id, request_hash=request_hash, on_deleted=tell
            )
        finally:
            # What an earlier try has deleted is told by none.
            held = [session_id for owner, session_id in self._local.keys() if owner == user_id]
            await self._deletions.run(self._forget(user_id, [name for name in held if isinstance(name, str)]))

    async def _forget(self, user_id: str, session_ids: Sequence[str]) -> None:
        names = [*self._messages.forget(user_id, session_ids), *self._lists.forget(user_id)]
        await self._shared.delete(names)

    async def user_version(self, user_id: str) -> UserVersion:
        return await self._inner.user_version(user_id)

    async def get_session(self, user_id: str, session_id: str) -> Session:
        return await self._inner.get_session(user_id, session_id)

    async def get_message(self, user_id: str, session_id: str, message_id: str) -> Message:
        return await self._inner.get_message(user_id, session_id, message_id)

    async def renew_run(self, user_id: str, run_id: str, *, fencing_token: int) -> Run:
        return await self._inner.renew_run(user_id, run_id, fencing_token=fencing_token)

    async def append_run_events(
        self, user_id: str, run_id: str, *, fencing_token: int, events: Sequence[RunEvent]
    ) -> AppendedEvents:
        return await self._inner.append_run_events(user_id, run_id, fencing_token=fencing_token, events=events)

    async def get_run(self, user_id: str, run_id: str) -> Run:
        return await self._inner.get_run(user_id, run_id)

    async def list_runs(self, user_id: str, session_id: str, *, page_size: int, after: RunCursor | None) -> RunPage:
        return await self._inner.list_runs(user_id, session_id, page_size=page_size, after=after)

    async def cancel_run(self, user_id: str, run_id: str) -> Run:
        return await self._inner.cancel_run(user_id, run_id)

    async def save_session(self, request: SaveSession) -> Session:
        return await self._inner.save_session(request)

    async def update_session(self, request: UpdateSession) -> Session:
        return await self._inner.update_session(request)

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
        return await self._inner.delete_messages(
            user_id,
            session_id,
            after_position=after_position,
            expected_revision=expected_revision,
            request_id=request_id,
            request_hash=request_hash,
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
        return await self._inner.list_hitl_tasks(
            user_id, session_id=session_id, state=state, page_size=page_size, after=after, max_bytes=max_bytes
        )

    async def get_hitl_task(self, user_id: str, task_id: str) -> HitlTask:
        return await self._inner.get_hitl_task(user_id, task_id)

    async def cancel_hitl_task(
        self, user_id: str, task_id: str, *, request_id: str = "", request_hash: bytes = b""
    ) -> HitlTask:
        return await self._inner.cancel_hitl_task(user_id, task_id, request_id=request_id, request_hash=request_hash)
