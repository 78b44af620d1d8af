import asyncio
import socket
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from askback.agent.v1 import knowledge_service_pb2
from askback.client import (
    AgentClient,
    DeadlineExceeded,
    InvalidField,
    KnowledgeClient,
    ModelUnavailable,
    NotImplementedByService,
    RunInProgress,
    SessionNotFound,
    StorageClient,
    TooLarge,
    Unavailable,
)
from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import session_pb2, session_service_pb2
from tests.integration.client.scripted import Failure, Services, answered_turn

UNAVAILABLE = Failure(grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")


async def test_an_error_carries_its_reason_metadata_and_retry_time(services: Services) -> None:
    services.sessions.recorder.failures = [
        Failure(grpc.StatusCode.ABORTED, "RUN_IN_PROGRESS", metadata={"active_run_id": "run-7"}, retry_after_s=3)
    ]
    async with StorageClient(services.address) as storage:
        with pytest.raises(RunInProgress) as raised:
            await storage.append_messages(user_id="u", session_id="s", messages=[{"type": "HUMAN", "content": "hi"}])
    error = raised.value
    assert (error.code, error.reason) == (grpc.StatusCode.ABORTED, "RUN_IN_PROGRESS")
    assert (error.metadata, error.retry_after) == ({"active_run_id": "run-7"}, 3.0)


async def test_an_invalid_field_is_named(services: Services) -> None:
    services.sessions.recorder.failures = [
        Failure(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", violations={"user_id": "1 to 128 characters"})
    ]
    async with StorageClient(services.address) as storage:
        with pytest.raises(InvalidField) as raised:
            await storage.get_session(user_id="", session_id="s")
    assert [(violation.field, violation.description) for violation in raised.value.field_violations] == [
        ("user_id", "1 to 128 characters")
    ]


async def test_a_stream_that_fails_raises_the_typed_error(services: Services) -> None:
    services.agent.turns = [[Failure(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")]]
    async with AgentClient(services.address) as agent:
        with pytest.raises(SessionNotFound):
            async for _ in agent.stream_chat(user_id="u", message="hi"):
                pass


async def test_an_rpc_that_the_service_lacks_is_told_as_such(services: Services) -> None:
    async with AgentClient(services.address) as agent:
        with pytest.raises(NotImplementedByService):
            await agent.cancel_run(user_id="u", run_id="r")


async def test_a_refused_connection_is_unavailable_without_a_reason() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        async with StorageClient(f"127.0.0.1:{unheard.getsockname()[1]}") as storage:
            with pytest.raises(Unavailable) as raised:
                await storage.get_session(user_id="u", session_id="s")
    assert raised.value.reason == ""


async def test_every_call_has_a_deadline_by_default(services: Services) -> None:
    services.agent.turns = [answered_turn()]
    async with StorageClient(services.address) as storage, AgentClient(services.address) as agent:
        await storage.get_session(user_id="u", session_id="s")
        await agent.chat(user_id="u", message="hi")
        async for _ in agent.stream_chat(user_id="u", message="hi"):
            pass
    (unary,), (chat, stream) = services.sessions.recorder.calls, services.agent.recorder.calls
    # On the wire a deadline is rounded up.
    assert unary.time_remaining is not None and 5 < unary.time_remaining <= 11
    assert chat.time_remaining is not None and 180 <= chat.time_remaining <= 305
    assert stream.time_remaining is not None and 180 <= stream.time_remaining <= 305


async def test_a_call_that_takes_longer_than_its_timeout_is_ended(services: Services) -> None:
    services.agent.turns, services.agent.hangs_after_events = [[]], True
    async with AgentClient(services.address) as agent:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            async for _ in agent.stream_chat(user_id="u", message="hi", timeout=0.2):
                pass
    assert time.monotonic() - began < 5


async def test_a_write_is_sent_again_after_unavailable_with_the_same_request_id(services: Services) -> None:
    services.sessions.recorder.failures = [UNAVAILABLE, UNAVAILABLE]
    async with StorageClient(services.address) as storage:
        await storage.append_messages(user_id="u", session_id="s", messages=[{"type": "HUMAN", "content": "hi"}])
    requests = [call.request for call in services.sessions.recorder.calls]
    assert len(requests) == 3
    assert isinstance(requests[0], session_service_pb2.AppendMessagesRequest) and len(requests[0].request_id) == 32
    assert requests[0] == requests[1] == requests[2]


async def test_a_third_unavailable_reaches_the_caller(services: Services) -> None:
    services.sessions.recorder.failures = [UNAVAILABLE] * 3
    async with StorageClient(services.address) as storage:
        with pytest.raises(Unavailable):
            await storage.get_session(user_id="u", session_id="s")
    assert len(services.sessions.recorder.calls) == 3


async def test_other_failures_are_not_sent_again(services: Services) -> None:
    services.sessions.recorder.failures = [Failure(grpc.StatusCode.ABORTED, "CONTENTION")] * 2
    async with StorageClient(services.address) as storage:
        with pytest.raises(Exception, match="CONTENTION"):
            await storage.get_session(user_id="u", session_id="s")
    assert len(services.sessions.recorder.calls) == 1


async def test_a_stream_is_sent_again_only_before_its_first_event(services: Services) -> None:
    model_gone = Failure(grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE")
    services.agent.turns = [[model_gone], [*answered_turn()[:2], model_gone]]
    seen = 0
    async with AgentClient(services.address) as agent:
        with pytest.raises(ModelUnavailable):
            async for _ in agent.stream_chat(user_id="u", message="hi"):
                seen += 1
    assert seen == 2
    assert [call.request for call in services.agent.recorder.calls] == [services.agent.recorder.calls[0].request] * 2


async def test_a_unary_chat_is_never_sent_again(services: Services) -> None:
    services.agent.recorder.failures = [Failure(grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE")]
    async with AgentClient(services.address) as agent:
        with pytest.raises(ModelUnavailable):
            await agent.chat(user_id="u", message="hi")
    assert len(services.agent.recorder.calls) == 1


async def test_metadata_of_a_call_reaches_the_service(services: Services) -> None:
    async with StorageClient(services.address) as storage:
        await storage.get_session(user_id="u", session_id="s", metadata=[("x-request-id", "abc")])
    (call,) = services.sessions.recorder.calls
    assert call.metadata["x-request-id"] == "abc"
    assert str(call.metadata["user-agent"]).startswith("askback-client-python")


async def test_all_pages_are_read_as_one_list(services: Services) -> None:
    services.sessions.sessions = [session_pb2.Session(session_id=f"s-{number}") for number in range(5)]
    services.sessions.messages = [session_pb2.Message(position=number) for number in range(1, 5)]
    services.hitl.tasks = [hitl_pb2.HitlTask(task_id=f"t-{number}") for number in range(3)]
    services.knowledge.documents = [knowledge_service_pb2.Document(filename=f"{number}.md") for number in range(3)]
    async with StorageClient(services.address) as storage, KnowledgeClient(services.address) as knowledge:
        sessions = [session.session_id async for session in storage.sessions(user_id="u")]
        positions = [message.position async for message in storage.messages(user_id="u", session_id="s")]
        tasks = [task.task_id async for task in storage.hitl_tasks(user_id="u", state="PENDING")]
        documents = [document.filename async for document in knowledge.documents()]
    assert sessions == [f"s-{number}" for number in range(5)]
    assert positions == [1, 2, 3, 4]
    assert tasks == ["t-0", "t-1", "t-2"]
    assert documents == ["0.md", "1.md", "2.md"]


async def test_only_the_pages_that_are_asked_for_are_fetched(services: Services) -> None:
    services.sessions.sessions = [session_pb2.Session(session_id=f"s-{number}") for number in range(6)]
    async with StorageClient(services.address) as storage:
        async for session in storage.sessions(user_id="u"):
            if session.session_id == "s-1":
                break
    assert len(services.sessions.recorder.calls) == 1


async def test_an_update_names_what_it_changes(services: Services) -> None:
    async with StorageClient(services.address) as storage:
        await storage.update_session(user_id="u", session_id="s", title="", session_metadata={"colour": None})
        await storage.update_session(user_id="u", session_id="s", update_mask=["expire_time"])
        later = datetime(2030, 1, 2, tzinfo=UTC)
        await storage.update_session(user_id="u", session_id="s", expire_time=later)
    requests = [call.request for call in services.sessions.recorder.calls]
    masks = [
        list(request.update_mask.paths)
        for request in requests
        if isinstance(request, session_service_pb2.UpdateSessionRequest)
    ]
    assert masks == [["title", "metadata"], ["expire_time"], ["expire_time"]]


async def test_a_document_goes_out_as_its_header_and_then_64_kib_chunks(services: Services, tmp_path: Path) -> None:
    content = bytes(range(256)) * 600
    path = tmp_path / "manual.md"
    path.write_bytes(content)

    async def pieces() -> AsyncIterator[bytes]:
        yield content[:100_000]
        yield content[100_000:]

    async with KnowledgeClient(services.address) as knowledge:
        for source, filename in ((content, "manual.md"), (path, ""), (pieces(), "manual.md")):
            services.knowledge.parts.clear()
            response = await knowledge.ingest_document(content=source, filename=filename, collection="manuals")
            header, *chunks = services.knowledge.parts
            assert (header.header.filename, header.header.collection) == ("manual.md", "manuals")
            assert b"".join(part.chunk for part in chunks) == content
            assert max(len(part.chunk) for part in chunks) == 64 * 1024
            assert response.document.filename == "manual.md"


async def test_an_ingest_that_is_refused_early_ends_with_the_services_reason(services: Services) -> None:
    services.knowledge.refuses_header_with = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE")
    async with KnowledgeClient(services.address) as knowledge:
        with pytest.raises(TooLarge):
            await knowledge.ingest_document(content=b"x" * 30_000_000, filename="big.txt")


async def test_a_document_that_cannot_be_read_cancels_its_call(services: Services, tmp_path: Path) -> None:
    async with KnowledgeClient(services.address) as knowledge:
        with pytest.raises(FileNotFoundError):
            await knowledge.ingest_document(content=tmp_path / "gone.md")


async def test_calls_at_once_share_a_client(services: Services) -> None:
    async with StorageClient(services.address) as storage:
        sessions = await asyncio.gather(
            *(storage.get_session(user_id="u", session_id=f"s-{number}") for number in range(20))
        )
    assert [session.session_id for session in sessions] == [f"s-{number}" for number in range(20)]


async def test_a_client_that_is_not_open_says_so(services: Services) -> None:
    storage = StorageClient(services.address)
    with pytest.raises(RuntimeError, match="async with"):
        await storage.get_session(user_id="u", session_id="s")
    for _ in range(2):
        async with storage:
            await storage.get_session(user_id="u", session_id="s")
    with pytest.raises(RuntimeError, match="async with"):
        await storage.get_session(user_id="u", session_id="s")


async def test_several_addresses_share_the_calls(services: Services) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        addresses = f"127.0.0.1:{unheard.getsockname()[1]},{services.address}"
        async with StorageClient(addresses) as storage:
            for number in range(4):
                await storage.get_session(user_id="u", session_id=f"s-{number}")
