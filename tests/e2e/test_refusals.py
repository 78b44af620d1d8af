"""What a caller may not send, and what becomes of it: a reason, the field, and nothing stored."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc.aio
import pytest

from askback.agent.v1 import knowledge_service_pb2, knowledge_service_pb2_grpc
from askback.client import (
    AskbackError,
    CollectionNotFound,
    DocumentUnreadable,
    HitlTaskNotFound,
    InvalidField,
    InvalidPageToken,
    NotImplementedByService,
    SessionNotFound,
    TooLarge,
)
from tests.e2e.harness import System, chat

PLAIN = "How many requests per minute does API v3 allow?"


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("user_id", {"user_id": ""}),
        ("user_id", {"user_id": "u" * 129}),
        ("user_id", {"user_id": "a\0b"}),
        ("session_id", {"session_id": "s" * 129}),
        ("session_id", {"session_id": "a\nb"}),
        ("request_id", {"request_id": "r" * 129}),
        ("answers_task_id", {"answers_task_id": "t" * 129}),
        ("message", {"message": ""}),
        ("message", {"message": " \n "}),
        ("message", {"message": "a\0b"}),
        ("message", {"message": "x" * 32_769}),
        ("collection", {"collection": "no/such"}),
        ("conflict_policy", {"conflict_policy": 17}),
        ("pending_hitl_policy", {"pending_hitl_policy": 17}),
        ("disconnect_policy", {"disconnect_policy": 17}),
    ],
)
async def test_a_field_that_may_not_hold_this_is_named(
    system: System, user: str, field: str, request_: dict[str, Any]
) -> None:
    request = {"user_id": user, "session_id": "s", "message": PLAIN, **request_}
    for call in (chat(system.agent, **request), system.agent.chat(**request)):
        with pytest.raises(InvalidField) as refused:
            await call
        assert [violation.field for violation in refused.value.field_violations] == [field]
    await _nothing_is_stored(system, user)


async def test_all_faults_of_a_request_are_told_at_once(system: System) -> None:
    with pytest.raises(InvalidField) as refused:
        await system.agent.chat(user_id="", message="", session_id="s" * 129)
    named = {violation.field for violation in refused.value.field_violations}
    assert named == {"user_id", "message", "session_id"}


async def test_an_id_of_128_characters_is_welcome(system: System, user: str) -> None:
    longest = user + "é" * (128 - len(user))
    response = await system.agent.chat(user_id=longest, session_id="ü" * 128, message=PLAIN)
    assert response.session_id == "ü" * 128


async def test_an_unknown_collection_is_not_found(system: System, user: str) -> None:
    with pytest.raises(CollectionNotFound):
        await chat(system.agent, user_id=user, session_id="s", message=PLAIN, collection="nowhere")
    with pytest.raises(CollectionNotFound):
        await system.knowledge.search_knowledge(query=PLAIN, collection="nowhere")
    with pytest.raises(CollectionNotFound):
        await system.knowledge.list_documents(collection="nowhere")
    await _nothing_is_stored(system, user)


async def test_an_unknown_question_is_not_found(system: System, user: str) -> None:
    with pytest.raises(HitlTaskNotFound):
        await chat(system.agent, user_id=user, session_id="s", message="Cedar", answers_task_id="nothing")
    await _nothing_is_stored(system, user)


async def test_another_users_question_is_as_unknown_as_none(system: System, user: str) -> None:
    asked = await system.agent.chat(user_id=user, session_id="s", message="How do I reset the admin PIN?")
    texts = []
    for task_id in (asked.hitl_request.task_id, "nothing"):
        with pytest.raises(HitlTaskNotFound) as refused:
            await chat(system.agent, user_id=f"{user}-other", session_id="s", message="x", answers_task_id=task_id)
        texts.append(refused.value.message)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "request_",
    [
        {"conflict_policy": "ENQUEUE"},
        {"conflict_policy": "INTERRUPT"},
        {"conflict_policy": "ROLLBACK"},
        {"disconnect_policy": "CONTINUE"},
        {"reconnect_grace": 10.0},
        {"retries_run_id": "run", "message": ""},
    ],
)
async def test_what_this_version_would_ignore_is_refused(system: System, user: str, request_: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedByService):
        await chat(system.agent, **{"user_id": user, "session_id": "s", "message": PLAIN, **request_})
    await _nothing_is_stored(system, user)


async def test_a_repeated_request_asks_no_model_twice(system: System, user: str) -> None:
    await chat(system.agent, user_id=user, session_id="s", message=PLAIN, request_id="once")
    with pytest.raises(NotImplementedByService):
        await chat(system.agent, user_id=user, session_id="s", message=PLAIN, request_id="once")
    assert (await system.storage.get_session(user_id=user, session_id="s")).message_count == 2


@pytest.mark.parametrize(
    ("filename", "content", "error", "reason", "fields"),
    [
        ("picture.png", b"\x89PNG", InvalidField, "INVALID_FIELD", ["header.filename"]),
        ("no-ending", b"text", InvalidField, "INVALID_FIELD", ["header.filename"]),
        ("../up.md", b"text", InvalidField, "INVALID_FIELD", ["header.filename"]),
        ("x" * 253 + ".md", b"text", InvalidField, "INVALID_FIELD", ["header.filename"]),
        ("", b"text", InvalidField, "INVALID_FIELD", ["header.filename"]),
        ("empty.md", b"", DocumentUnreadable, "DOCUMENT_UNREADABLE", []),
        ("binary.txt", b"\x00\x01\x02\xff", DocumentUnreadable, "DOCUMENT_UNREADABLE", []),
        ("large.txt", b"word " * (7 * 1024 * 1024), TooLarge, "TOO_LARGE", []),
    ],
)
async def test_a_document_that_cannot_be_one_is_refused(
    system: System, filename: str, content: bytes, error: type[AskbackError], reason: str, fields: list[str]
) -> None:
    with pytest.raises(error) as refused:
        await system.knowledge.ingest_document(filename=filename, content=content, collection="refused")
    assert refused.value.reason == reason
    assert [violation.field for violation in refused.value.field_violations] == fields
    listed = await system.knowledge.list_collections()
    assert "refused" not in [collection.collection for collection in listed.collections]


async def test_all_faults_of_a_request_about_documents_are_told_at_once(system: System) -> None:
    refused: list[tuple[Awaitable[object], set[str]]] = [
        (
            system.knowledge.ingest_document(filename="a.png", content=b"x", collection="a b"),
            {"header.filename", "header.collection"},
        ),
        (system.knowledge.delete_document(filename="a/b", collection="a b"), {"filename", "collection"}),
        (system.knowledge.list_documents(collection="a b", page_size=-1), {"collection", "page_size"}),
        (
            system.knowledge.search_knowledge(query="", collection="a b", top_k=51),
            {"query", "collection", "top_k"},
        ),
    ]
    for call, fields in refused:
        with pytest.raises(InvalidField) as caught:
            await call
        assert {violation.field for violation in caught.value.field_violations} == fields


async def test_an_upload_that_is_refused_by_its_name_is_refused_before_its_bytes_come(system: System) -> None:
    async with grpc.aio.insecure_channel(system.agent_server.address) as channel:
        stub: Any = knowledge_service_pb2_grpc.KnowledgeServiceStub(channel)
        call = stub.IngestDocument()
        header = knowledge_service_pb2.DocumentHeader(filename="picture.png")
        await call.write(knowledge_service_pb2.IngestDocumentRequest(header=header))
        async with asyncio.timeout(10):
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_documents_are_ingested_found_and_deleted(system: System, user: str) -> None:
    words = b"# The Otter pump\n\nThe Otter pump moves 40 litres of water each minute.\n"
    first = await system.knowledge.ingest_document(filename="otter.md", content=words, collection=user)
    again = await system.knowledge.ingest_document(filename="otter.md", content=words, collection=user)
    assert (first.unchanged, again.unchanged) == (False, True)
    assert first.document == again.document
    found = await system.knowledge.search_knowledge(query="Otter pump litres", collection=user)
    assert found.chunks[0].filename == "otter.md"
    assert found.retrieval.mode == "hybrid"
    answer = await system.agent.chat(user_id=user, message="How much water does the Otter pump move?", collection=user)
    assert "40 litres" in answer.response
    assert await system.knowledge.delete_document(filename="otter.md", collection=user) == first.document.chunk_count
    # A collection exists while it has documents.
    with pytest.raises(CollectionNotFound):
        await system.knowledge.delete_document(filename="otter.md", collection=user)


async def test_documents_are_paged_in_one_order(system: System) -> None:
    whole = [document.filename async for document in system.knowledge.documents(collection="default")]
    paged = [document.filename async for document in system.knowledge.documents(collection="default", page_size=4)]
    assert paged == whole == sorted(whole)
    page = await system.knowledge.list_documents(collection="default", page_size=4)
    with pytest.raises(InvalidPageToken):
        await system.knowledge.list_collections(page_token=page.next_page_token)
    with pytest.raises(InvalidField):
        await system.knowledge.list_documents(collection="default", page_size=-1)


async def _nothing_is_stored(system: System, user: str) -> None:
    with pytest.raises(SessionNotFound):
        await system.storage.get_session(user_id=user, session_id="s")
