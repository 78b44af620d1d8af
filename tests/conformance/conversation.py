"""One user's session, talked in through the port."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from services.storage.models import (
    HitlKind,
    HitlTask,
    HitlTaskDraft,
    Message,
    MessageType,
    NewMessage,
    PendingHitlPolicy,
    RunError,
    RunStatus,
    Usage,
)
from services.storage.store.base import BeginRun, BegunRun, ConversationStorage, FinishedRun, FinishRun

MIB = 1024 * 1024
LEASE = timedelta(minutes=1)
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

    async def messages(self) -> list[Message]:
        """All of them, with their traces."""
        loaded = await self.store.load_session(
            self.user_id, self.session_id, max_messages=0, include_traces=True, max_bytes=16 * MIB
        )
        return list(loaded.messages)

    async def contents(self) -> list[str]:
        return [message.content for message in await self.messages()]
