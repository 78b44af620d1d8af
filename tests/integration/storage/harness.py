"""Calls over a real channel, and what is told of those that are refused."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import hitl_service_pb2_grpc, run_service_pb2_grpc, session_service_pb2_grpc
from askback.storage.v1.run_pb2 import RUN_STATUS_AWAITING_INPUT, RUN_STATUS_COMPLETED, RunStatus
from askback.storage.v1.run_service_pb2 import (
    BeginRunRequest,
    BeginRunResponse,
    FinishRunRequest,
    FinishRunResponse,
)
from askback.storage.v1.session_pb2 import MESSAGE_TYPE_AI, MESSAGE_TYPE_HUMAN, Message, Session
from askback.storage.v1.session_service_pb2 import (
    AppendMessagesRequest,
    AppendMessagesResponse,
    GetSessionRequest,
    ListMessagesRequest,
)

if TYPE_CHECKING:
    from askback.storage.v1.hitl_service_pb2_grpc import HitlServiceAsyncStub
    from askback.storage.v1.run_service_pb2_grpc import RunServiceAsyncStub
    from askback.storage.v1.session_service_pb2_grpc import SessionServiceAsyncStub

T = TypeVar("T")

EndLease = Callable[[BeginRunResponse], Awaitable[None]]

_numbers = itertools.count(1)


def unique(what: str) -> str:
    """A name that no other test uses."""
    return f"{what}-{next(_numbers)}"


class Storage:
    """One storage server's stubs, and the calls that most tests begin with."""

    def __init__(self, channel: grpc.aio.Channel):
        self.channel = channel
        self.sessions: SessionServiceAsyncStub = session_service_pb2_grpc.SessionServiceStub(channel)
        self.runs: RunServiceAsyncStub = run_service_pb2_grpc.RunServiceStub(channel)
        self.hitl: HitlServiceAsyncStub = hitl_service_pb2_grpc.HitlServiceStub(channel)

    async def begin(
        self, user_id: str, session_id: str = "s", message: str = "a question", **fields: Any
    ) -> BeginRunResponse:
        given: dict[str, Any] = {"holder_id": unique("holder")}
        return await self.runs.BeginRun(
            BeginRunRequest(user_id=user_id, session_id=session_id, message=message, **given | fields), timeout=20
        )

    async def finish(
        self,
        begun: BeginRunResponse,
        content: str = "an answer",
        *,
        status: RunStatus.ValueType = RUN_STATUS_COMPLETED,
        **fields: Any,
    ) -> FinishRunResponse:
        return await self.runs.FinishRun(finish_request(begun, content, status=status, **fields), timeout=20)

    async def turn(
        self, user_id: str, session_id: str = "s", message: str = "a question", answer: str = "an answer"
    ) -> FinishRunResponse:
        return await self.finish(await self.begin(user_id, session_id, message), answer)

    async def append(
        self, user_id: str, session_id: str = "s", *messages: Message, **fields: Any
    ) -> AppendMessagesResponse:
        """Unless it is told what: a question and its answer."""
        given = messages or (human("a question"), ai("an answer"))
        return await self.sessions.AppendMessages(
            AppendMessagesRequest(user_id=user_id, session_id=session_id, messages=given, **fields), timeout=20
        )

    async def session(self, user_id: str, session_id: str = "s") -> Session:
        request = GetSessionRequest(user_id=user_id, session_id=session_id)
        return (await self.sessions.GetSession(request, timeout=20)).session

    async def messages(self, user_id: str, session_id: str = "s") -> list[Message]:
        """The first thousand, with their traces."""
        request = ListMessagesRequest(user_id=user_id, session_id=session_id, page_size=1_000)
        return list((await self.sessions.ListMessages(request, timeout=20)).messages)

    async def ask_back(self, user_id: str, session_id: str = "s", **task: Any) -> FinishRunResponse:
        """A turn that ends with a question to the user."""
        begun = await self.begin(user_id, session_id)
        return await self.finish(begun, "which one?", status=RUN_STATUS_AWAITING_INPUT, opened_task=draft(**task))


def human(content: str, **fields: Any) -> Message:
    return Message(type=MESSAGE_TYPE_HUMAN, content=content, **fields)


def ai(content: str, **fields: Any) -> Message:
    return Message(type=MESSAGE_TYPE_AI, content=content, **fields)


def draft(**fields: Any) -> hitl_pb2.HitlTaskDraft:
    given: dict[str, Any] = {
        "original_question": "a question",
        "prompt": "which one?",
        "kind": hitl_pb2.HITL_KIND_CLARIFY,
    }
    return hitl_pb2.HitlTaskDraft(**given | fields)


def finish_request(
    begun: BeginRunResponse,
    content: str = "an answer",
    *,
    status: RunStatus.ValueType = RUN_STATUS_COMPLETED,
    **fields: Any,
) -> FinishRunRequest:
    given: dict[str, Any] = {
        "fencing_token": begun.fencing_token,
        "reply": Message(type=MESSAGE_TYPE_AI, content=content),
    }
    return FinishRunRequest(user_id=begun.run.user_id, run_id=begun.run.run_id, status=status, **given | fields)


async def eventually(look: Callable[[], Awaitable[T]], fits: Callable[[T], bool], *, within_s: float = 10) -> T:
    """Looks until what it sees fits."""
    async with asyncio.timeout(within_s):
        while True:
            if fits(seen := await look()):
                return seen
            await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Refusal:
    """What a caller is told of a call that failed."""

    code: grpc.StatusCode
    text: str
    reason: str
    metadata: dict[str, str]
    fields: list[str]
    retry_after_s: float | None


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Calls, and does as it is told where the store is OVERLOADED: it comes again later."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if (told := refusal_of(error)).reason != "OVERLOADED":
                raise
            await asyncio.sleep(told.retry_after_s or 0)


async def refused(call: Awaitable[object]) -> Refusal:
    """Awaits the call, which must fail, with details."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError(f"not refused, but answered with {type(answer).__name__}")


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    status, info = status_pb2.Status(), error_details_pb2.ErrorInfo()
    bad, retry = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            status.ParseFromString(value)
    for detail in status.details:
        for known in (info, bad, retry):
            detail.Unpack(known)
    assert info.domain == "askback"
    return Refusal(
        code=error.code(),
        text=error.details() or "",
        reason=info.reason,
        metadata=dict(info.metadata),
        fields=[violation.field for violation in bad.field_violations],
        retry_after_s=retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None,
    )
