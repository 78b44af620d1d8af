"""Services that speak the real protocol, and say what a test has them say."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from askback.agent.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    chat_pb2,
    knowledge_service_pb2,
    knowledge_service_pb2_grpc,
)
from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import (
    hitl_service_pb2,
    hitl_service_pb2_grpc,
    run_pb2,
    session_pb2,
    session_service_pb2,
    session_service_pb2_grpc,
)

ItemT = TypeVar("ItemT")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True)
class Failure:
    """A status with its details, as the services send it."""

    code: grpc.StatusCode
    reason: str
    text: str = "it failed"
    metadata: dict[str, str] = field(default_factory=dict)
    violations: dict[str, str] = field(default_factory=dict)
    retry_after_s: int | None = None

    async def abort(self, context: Context) -> None:
        details: list[Message] = [
            error_details_pb2.ErrorInfo(reason=self.reason, domain="askback", metadata=self.metadata)
        ]
        if self.violations:
            violations = [
                error_details_pb2.BadRequest.FieldViolation(field=name, description=text)
                for name, text in self.violations.items()
            ]
            details.append(error_details_pb2.BadRequest(field_violations=violations))
        if self.retry_after_s is not None:
            delay = duration_pb2.Duration(seconds=self.retry_after_s)
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        packed = [any_pb2.Any() for _ in details]
        for target, detail in zip(packed, details, strict=True):
            target.Pack(detail)
        status = status_pb2.Status(code=self.code.value[0], message=self.text, details=packed)
        await context.abort(self.code, self.text, (("grpc-status-details-bin", status.SerializeToString()),))


@dataclass
class Call:
    """What a handler saw of one call."""

    method: str
    request: Message
    time_remaining: float | None
    metadata: dict[str, str | bytes]


class Recorder:
    """The calls that came, and the failures that are to meet the next ones."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.failures: list[Failure] = []
        self.handler_left = asyncio.Event()
        self.handler_began = asyncio.Event()

    async def meet(self, method: str, request: Message, context: Context) -> None:
        metadata = {key: value for key, value in context.invocation_metadata() or ()}
        self.calls.append(Call(method, request, context.time_remaining(), metadata))
        if self.failures:
            await self.failures.pop(0).abort(context)


class ScriptedAgent(agent_service_pb2_grpc.AgentServiceServicer):
    """Tells the next of `turns` for each StreamChat; after the last, and where told to, it says nothing more."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.turns: list[Sequence[chat_pb2.ChatEvent | Failure]] = []
        self.hangs_after_events = False

    async def StreamChat(
        self, request: agent_service_pb2.ChatRequest, context: Context
    ) -> AsyncIterator[chat_pb2.ChatEvent]:
        await self.recorder.meet("StreamChat", request, context)
        try:
            for event in self.turns.pop(0):
                if isinstance(event, Failure):
                    await event.abort(context)
                else:
                    yield event
            self.recorder.handler_began.set()
            if self.hangs_after_events:
                await asyncio.Event().wait()
        finally:
            self.recorder.handler_left.set()

    async def Chat(self, request: agent_service_pb2.ChatRequest, context: Context) -> agent_service_pb2.ChatResponse:
        await self.recorder.meet("Chat", request, context)
        return agent_service_pb2.ChatResponse(response="two years")


class ScriptedKnowledge(knowledge_service_pb2_grpc.KnowledgeServiceServicer):
    """Keeps the parts of what is ingested, and lists what it was given."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.parts: list[knowledge_service_pb2.IngestDocumentRequest] = []
        self.refuses_header_with: Failure | None = None
        self.documents: list[knowledge_service_pb2.Document] = []

    async def IngestDocument(
        self,
        request_iterator: AsyncIterator[knowledge_service_pb2.IngestDocumentRequest],
        context: Context,
    ) -> knowledge_service_pb2.IngestDocumentResponse:
        async for part in request_iterator:
            self.parts.append(part)
            if self.refuses_header_with is not None:
                await self.refuses_header_with.abort(context)
        header = [part.header for part in self.parts if part.HasField("header")][-1]
        document = knowledge_service_pb2.Document(filename=header.filename, collection=header.collection, chunk_count=3)
        return knowledge_service_pb2.IngestDocumentResponse(document=document)

    async def ListDocuments(
        self, request: knowledge_service_pb2.ListDocumentsRequest, context: Context
    ) -> knowledge_service_pb2.ListDocumentsResponse:
        await self.recorder.meet("ListDocuments", request, context)
        page, token = page_of(self.documents, request.page_token, size=2)
        return knowledge_service_pb2.ListDocumentsResponse(documents=page, next_page_token=token)

    async def SearchKnowledge(
        self, request: knowledge_service_pb2.SearchKnowledgeRequest, context: Context
    ) -> knowledge_service_pb2.SearchKnowledgeResponse:
        await self.recorder.meet("SearchKnowledge", request, context)
        chunk = trace_pb2.RetrievedChunk(filename="warranty.md", page_number="2", text="Two years.", score=0.5)
        return knowledge_service_pb2.SearchKnowledgeResponse(chunks=[chunk])


class ScriptedSessions(session_service_pb2_grpc.SessionServiceServicer):
    """Lists what it was given, two to a page, and answers writes with what came."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.sessions: list[session_pb2.Session] = []
        self.messages: list[session_pb2.Message] = []

    async def GetSession(
        self, request: session_service_pb2.GetSessionRequest, context: Context
    ) -> session_service_pb2.GetSessionResponse:
        await self.recorder.meet("GetSession", request, context)
        session = session_pb2.Session(user_id=request.user_id, session_id=request.session_id)
        return session_service_pb2.GetSessionResponse(session=session)

    async def AppendMessages(
        self, request: session_service_pb2.AppendMessagesRequest, context: Context
    ) -> session_service_pb2.AppendMessagesResponse:
        await self.recorder.meet("AppendMessages", request, context)
        return session_service_pb2.AppendMessagesResponse(messages=request.messages)

    async def UpdateSession(
        self, request: session_service_pb2.UpdateSessionRequest, context: Context
    ) -> session_service_pb2.UpdateSessionResponse:
        await self.recorder.meet("UpdateSession", request, context)
        return session_service_pb2.UpdateSessionResponse(session=request.session)

    async def ListSessions(
        self, request: session_service_pb2.ListSessionsRequest, context: Context
    ) -> session_service_pb2.ListSessionsResponse:
        await self.recorder.meet("ListSessions", request, context)
        page, token = page_of(self.sessions, request.page_token, size=2)
        return session_service_pb2.ListSessionsResponse(sessions=page, next_page_token=token)

    async def ListMessages(
        self, request: session_service_pb2.ListMessagesRequest, context: Context
    ) -> session_service_pb2.ListMessagesResponse:
        await self.recorder.meet("ListMessages", request, context)
        page, token = page_of(self.messages, request.page_token, size=2)
        return session_service_pb2.ListMessagesResponse(messages=page, next_page_token=token)

    async def DeleteSession(
        self, request: session_service_pb2.DeleteSessionRequest, context: Context
    ) -> session_service_pb2.DeleteSessionResponse:
        await self.recorder.meet("DeleteSession", request, context)
        return session_service_pb2.DeleteSessionResponse(session_id=request.session_id, deleted_message_count=4)


class ScriptedHitl(hitl_service_pb2_grpc.HitlServiceServicer):
    """Holds the questions that it was given."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.tasks: list[hitl_pb2.HitlTask] = []

    async def GetHitlTask(
        self, request: hitl_service_pb2.GetHitlTaskRequest, context: Context
    ) -> hitl_service_pb2.GetHitlTaskResponse:
        await self.recorder.meet("GetHitlTask", request, context)
        found = [task for task in self.tasks if task.task_id == request.task_id]
        if not found:
            await Failure(grpc.StatusCode.NOT_FOUND, "HITL_TASK_NOT_FOUND", "no such question").abort(context)
        return hitl_service_pb2.GetHitlTaskResponse(task=found[0])

    async def ListHitlTasks(
        self, request: hitl_service_pb2.ListHitlTasksRequest, context: Context
    ) -> hitl_service_pb2.ListHitlTasksResponse:
        await self.recorder.meet("ListHitlTasks", request, context)
        page, token = page_of(self.tasks, request.page_token, size=2)
        return hitl_service_pb2.ListHitlTasksResponse(tasks=page, next_page_token=token)


def page_of(items: Sequence[ItemT], token: str, *, size: int) -> tuple[Sequence[ItemT], str]:
    start = int(token or 0)
    return items[start : start + size], str(start + size) if start + size < len(items) else ""


def event(sequence: int = 1, **arm: Message) -> chat_pb2.ChatEvent:
    """A ChatEvent with the one arm that is named."""
    made = chat_pb2.ChatEvent(run_id="run-1", sequence=sequence)
    for name, value in arm.items():
        getattr(made, name).CopyFrom(value)
    return made


def answered_turn(text: str = "The warranty is two years [1].", *, session_id: str = "s-1") -> list[chat_pb2.ChatEvent]:
    """A turn that searches, answers with a citation, and finishes."""
    step = chat_pb2.RagStep
    chunks = [
        trace_pb2.RetrievedChunk(filename="warranty.md", page_number="2", text="Two years."),
        trace_pb2.RetrievedChunk(filename="returns.md", text="Thirty days."),
    ]
    return [
        event(1, started=chat_pb2.RunStarted(session_id=session_id)),
        event(2, rag_step=step(icon="🔎", label="Searching", detail="8 candidates", elapsed_ms=12)),
        event(3, rag_step=step(icon="🧪", label="Grading", elapsed_ms=1_234, group="1", group_label="How long?")),
        event(4, content=chat_pb2.ContentDelta(text=text[:9])),
        event(5, content=chat_pb2.ContentDelta(text=text[9:])),
        event(6, rag_trace=trace_pb2.RagTrace(retrieved_chunks=chunks)),
        event(7, finished=chat_pb2.RunFinished(status=run_pb2.RUN_STATUS_COMPLETED)),
    ]


def question_back(
    options: Sequence[str] = ("Atlas", "Borealis"), *, prompt: str = "Which product?", session_id: str = "s-1"
) -> list[chat_pb2.ChatEvent]:
    """A turn that ends with a question to the user."""
    task = hitl_pb2.HitlTask(task_id="task-1", session_id=session_id, prompt=prompt, options=options)
    return [
        event(1, started=chat_pb2.RunStarted(session_id=session_id)),
        event(2, hitl_request=task),
        event(3, finished=chat_pb2.RunFinished(status=run_pb2.RUN_STATUS_AWAITING_INPUT)),
    ]


@dataclass
class Services:
    """All scripted services behind one port."""

    address: str
    agent: ScriptedAgent
    knowledge: ScriptedKnowledge
    sessions: ScriptedSessions
    hitl: ScriptedHitl


async def start_services() -> tuple[grpc.aio.Server, Services]:
    server = grpc.aio.server()
    # The stubs call each method abstract, where the generated class answers UNIMPLEMENTED.
    agent = ScriptedAgent()  # type: ignore[abstract]
    knowledge = ScriptedKnowledge()  # type: ignore[abstract]
    sessions = ScriptedSessions()  # type: ignore[abstract]
    hitl = ScriptedHitl()  # type: ignore[abstract]
    agent_service_pb2_grpc.add_AgentServiceServicer_to_server(agent, server)
    knowledge_service_pb2_grpc.add_KnowledgeServiceServicer_to_server(knowledge, server)
    session_service_pb2_grpc.add_SessionServiceServicer_to_server(sessions, server)
    hitl_service_pb2_grpc.add_HitlServiceServicer_to_server(hitl, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, Services(f"127.0.0.1:{port}", agent, knowledge, sessions, hitl)
