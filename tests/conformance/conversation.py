"""One user's session, talked in through the port."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from services.storage.models import (
    ConflictPolicy,
    HitlKind,
    HitlTask,
    HitlTaskDraft,
    Message,
    MessageType,
    NewMessage,
    PendingHitlPolicy,
    Run,
    RunError,
    RunEvent,
    RunStatus,
    Session,
    Usage,
)
from services.storage.store.base import ConversationStorage
from services.storage.store.commands import AppendMessages, BeginRun, FinishRun, SaveSession, UpdateSession
from services.storage.store.results import AppendedEvents, AppendedMessages, BegunRun, DeletedMessages, FinishedRun

MIB = 1024 * 1024
LEASE = timedelta(minutes=1)
PATIENCE = timedelta(seconds=30)
NO_PATIENCE = timedelta(0)
RUN_OUT = timedelta(0)
"""A lease, or a question's time, that has run out as soon as it is given."""


def new_name() -> str:
    return secrets.token_hex(8)


def question(
    prompt: str = "Which product?",
    *,
    expire_after: timedelta = timedelta(days=7),
    options: tuple[str, ...] = ("Harbor", "Lighthouse"),
    answers: tuple[str, ...] = (),
    resume_state: bytes = b"\x00resume\xff",
) -> HitlTaskDraft:
    return HitlTaskDraft(
        original_question="How long is it kept?",
        prompt=prompt,
        options=options,
        kind=HitlKind.SCOPE_SELECT,
        answers=answers,
        resume_state=resume_state,
        expire_after=expire_after,
    )


def said(content: str, *, message_id: str = "", trace: bytes | None = None, extra_json: str = "") -> NewMessage:
    return NewMessage(type=MessageType.AI, content=content, message_id=message_id, trace=trace, extra_json=extra_json)


@dataclass(frozen=True)
class Conversation:
    store: ConversationStorage
    user_id: str = field(default_factory=new_name)
    session_id: str = field(default_factory=new_name)

    def another(self) -> "Conversation":
        """Another session of the same user."""
        return Conversation(self.store, user_id=self.user_id)

    async def begin(
        self,
        message: str = "Hello",
        *,
        lease: timedelta = LEASE,
        request_id: str = "",
        request_hash: bytes = b"",
        answers_task_id: str = "",
        policy: PendingHitlPolicy = PendingHitlPolicy.ANSWER,
        conflict_policy: ConflictPolicy = ConflictPolicy.REJECT,
        patience: timedelta = PATIENCE,
        retries_run_id: str = "",
        max_context_messages: int = 0,
        holder_id: str = "",
        title_if_new: str = "",
    ) -> BegunRun:
        return await self.store.begin_run(
            BeginRun(
                user_id=self.user_id,
                session_id=self.session_id,
                message=message,
                lease=lease,
                request_id=request_id,
                request_hash=request_hash,
                answers_task_id=answers_task_id,
                pending_hitl_policy=policy,
                conflict_policy=conflict_policy,
                patience=patience,
                retries_run_id=retries_run_id,
                max_context_messages=max_context_messages,
                holder_id=holder_id,
                title_if_new=title_if_new,
            )
        )

    async def finish(
        self,
        begun: BegunRun,
        reply: NewMessage | None = None,
        *,
        status: RunStatus = RunStatus.COMPLETED,
        metadata: Mapping[str, Any] | None = None,
        opened_task: HitlTaskDraft | None = None,
        error: RunError | None = None,
        usage: Usage | None = None,
        fencing_token: int | None = None,
        request_hash: bytes = b"finish",
    ) -> FinishedRun:
        return await self.store.finish_run(
            FinishRun(
                user_id=self.user_id,
                run_id=begun.run.run_id,
                fencing_token=begun.fencing_token if fencing_token is None else fencing_token,
                request_hash=request_hash,
                status=status,
                reply=reply,
                metadata=metadata or {},
                opened_task=opened_task,
                error=error,
                usage=usage,
            )
        )

    async def enqueue(
        self, message: str, *, patience: timedelta = PATIENCE, policy: PendingHitlPolicy = PendingHitlPolicy.ANSWER
    ) -> BegunRun:
        """The message is the request's id, too."""
        return await self.begin(
            message,
            request_id=message,
            request_hash=message.encode(),
            conflict_policy=ConflictPolicy.ENQUEUE,
            patience=patience,
            policy=policy,
        )

    async def tell(self, begun: BegunRun, *pieces: str) -> AppendedEvents:
        """The first events of a run, each with a piece of its reply."""
        events = [
            RunEvent(sequence=sequence, payload=b"event", reply_text=piece)
            for sequence, piece in enumerate(pieces, start=1)
        ]
        return await self.store.append_run_events(
            self.user_id, begun.run.run_id, fencing_token=begun.fencing_token, events=events
        )

    async def run(self, begun: BegunRun) -> Run:
        """As it is by now."""
        return await self.store.get_run(self.user_id, begun.run.run_id)

    async def runs(self, status: RunStatus | None = None) -> list[Run]:
        """All of the session's, the newest first."""
        page = await self.store.list_runs(self.user_id, self.session_id, page_size=1_000, after=None)
        return [run for run in page.runs if status in (None, run.status)]

    async def until_waiting(self, count: int = 1) -> list[Run]:
        """The runs that wait, the newest first, once there are so many."""
        async with asyncio.timeout(30):
            while True:
                waiting = await self.runs(RunStatus.QUEUED)
                if len(waiting) == count:
                    return waiting
                await asyncio.sleep(0.01)

    async def until_asked_to_stop(self, begun: BegunRun) -> None:
        async with asyncio.timeout(30):
            while True:
                if (await self.run(begun)).cancel_requested:
                    return
                await asyncio.sleep(0.01)

    async def turn(self, message: str = "Hello", reply: NewMessage | None = None) -> FinishedRun:
        return await self.finish(await self.begin(message), reply or said("Hello to you"))

    async def ask_back(self, draft: HitlTaskDraft | None = None) -> HitlTask:
        """A turn that ends with a question; returns it."""
        draft = draft or question()
        finished = await self.finish(
            await self.begin("How long is it kept?"),
            said(draft.prompt),
            status=RunStatus.AWAITING_INPUT,
            opened_task=draft,
        )
        assert finished.opened_task is not None
        return finished.opened_task

    async def append(
        self,
        *messages: str | NewMessage,
        expected_revision: int | None = None,
        request_id: str = "",
        request_hash: bytes = b"",
    ) -> AppendedMessages:
        return await self.store.append_messages(
            AppendMessages(
                user_id=self.user_id,
                session_id=self.session_id,
                messages=_written(messages),
                expected_revision=expected_revision,
                request_id=request_id,
                request_hash=request_hash,
            )
        )

    async def save(
        self,
        *messages: str | NewMessage,
        metadata: Mapping[str, Any] | None = None,
        expected_revision: int | None = None,
        request_id: str = "",
        request_hash: bytes = b"",
    ) -> Session:
        return await self.store.save_session(
            SaveSession(
                user_id=self.user_id,
                session_id=self.session_id,
                messages=_written(messages),
                metadata=metadata or {},
                expected_revision=expected_revision,
                request_id=request_id,
                request_hash=request_hash,
            )
        )

    async def update(
        self,
        *,
        title: str | None = None,
        note: str | None = None,
        note_through_position: int = 0,
        expire_time: datetime | None = None,
        sets_expire_time: bool = False,
        metadata: Mapping[str, Any] | None = None,
        expected_revision: int | None = None,
        request_id: str = "",
        request_hash: bytes = b"",
    ) -> Session:
        return await self.store.update_session(
            UpdateSession(
                user_id=self.user_id,
                session_id=self.session_id,
                title=title,
                note=note,
                note_through_position=note_through_position,
                sets_expire_time=sets_expire_time,
                expire_time=expire_time,
                metadata=metadata,
                expected_revision=expected_revision,
                request_id=request_id,
                request_hash=request_hash,
            )
        )

    async def delete_messages(
        self,
        *,
        after: int,
        expected_revision: int | None = None,
        request_id: str = "",
        request_hash: bytes = b"",
    ) -> DeletedMessages:
        return await self.store.delete_messages(
            self.user_id,
            self.session_id,
            after_position=after,
            expected_revision=expected_revision,
            request_id=request_id,
            request_hash=request_hash,
        )

    async def delete(self) -> int:
        return await self.store.delete_session(self.user_id, self.session_id)

    async def session(self) -> Session:
        return await self.store.get_session(self.user_id, self.session_id)

    async def messages(self) -> list[Message]:
        """All of them, with their traces."""
        loaded = await self.store.load_session(
            self.user_id, self.session_id, max_messages=0, include_traces=True, max_bytes=16 * MIB
        )
        return list(loaded.messages)

    async def contents(self) -> list[str]:
        return [message.content for message in await self.messages()]


def _written(messages: Sequence[str | NewMessage]) -> list[NewMessage]:
    """Plain words are a person's."""
    return [
        NewMessage(type=MessageType.HUMAN, content=message) if isinstance(message, str) else message
        for message in messages
    ]
