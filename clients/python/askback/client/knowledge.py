"""KnowledgeService: the documents that the agent answers from."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from askback.agent.v1 import knowledge_service_pb2 as wire
from askback.agent.v1.knowledge_service_pb2_grpc import KnowledgeServiceStub
from askback.client.channel import (
    INGEST_BASE_TIMEOUT_S,
    INGEST_BYTES_A_SECOND,
    INGEST_TIMEOUT_S,
    Metadata,
    ServiceClient,
)
from askback.client.paging import all_items
from askback.client.status import error_from_rpc
from askback.client.wire import build

if TYPE_CHECKING:
    from askback.agent.v1.knowledge_service_pb2_grpc import KnowledgeServiceAsyncStub

CHUNK_BYTES = 64 * 1024

# A write that meets the end of its call puts a status of grpc's own in the place of the service's, which is lost.
# Nothing was ingested then, and another try may be told why.
_STATUS_LOST = "Internal error from Core"
_TRIES = 4

# Embedding a question and reranking its evidence may each wait for another service.
_SEARCH_TIMEOUT_S = 30.0


class KnowledgeClient(ServiceClient):
    """The agent's knowledge, at the agent's `address`. An empty collection is "default"."""

    @property
    def _knowledge(self) -> "KnowledgeServiceAsyncStub":
        return self._stub(KnowledgeServiceStub)

    async def ingest_document(
        self,
        *,
        content: bytes | Path | AsyncIterable[bytes],
        filename: str = "",
        collection: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.IngestDocumentResponse:
        """Puts a document in the place of an older one of the same name; of a Path, its own name unless given.

        The content is read as it is sent, and not to its end where the service refuses it before. The default
        deadline grows with the size: 5 minutes, and a minute more for each 300 KB; an hour where the size of a
        stream is not known.
        """
        if not filename and isinstance(content, Path):
            filename = content.name
        header = wire.DocumentHeader(collection=collection, filename=filename)
        deadline = await _deadline(content) if timeout is None else timeout
        tries = _TRIES if isinstance(content, (bytes, Path)) else 1
        while True:
            tries -= 1
            call = self._knowledge.IngestDocument(timeout=deadline, metadata=metadata)
            try:
                await _send(call, header, content)
                return await call
            except grpc.aio.AioRpcError as error:
                if tries == 0 or error.details() != _STATUS_LOST:
                    raise error_from_rpc(error) from error
            finally:
                call.cancel()

    async def list_documents(
        self,
        *,
        collection: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.ListDocumentsResponse:
        """One page of a collection's documents."""
        request = build(
            wire.ListDocumentsRequest,
            collection=collection,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._answer(self._knowledge.ListDocuments, request, timeout, metadata)

    async def list_collections(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.ListCollectionsResponse:
        """One page of the collections."""
        request = build(
            wire.ListCollectionsRequest,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._answer(self._knowledge.ListCollections, request, timeout, metadata)

    async def delete_document(
        self,
        *,
        filename: str,
        collection: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> int:
        """Deletes a document, and says how many chunks it had."""
        request = build(
            wire.DeleteDocumentRequest,
            filename=filename,
            collection=collection,
        )
        response = await self._answer(self._knowledge.DeleteDocument, request, timeout, metadata)
        return response.deleted_chunk_count

    async def search_knowledge(
        self,
        *,
        query: str,
        collection: str = "",
        top_k: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.SearchKnowledgeResponse:
        """What a question would find, with the numbers behind it; 0 means the service's own top_k."""
        request = build(
            wire.SearchKnowledgeRequest,
            query=query,
            collection=collection,
            top_k=top_k,
        )
        return await self._answer(
            self._knowledge.SearchKnowledge, request, timeout, metadata, default_timeout=_SEARCH_TIMEOUT_S
        )

    def documents(
        self,
        *,
        collection: str = "",
        page_size: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> AsyncIterator[wire.Document]:
        """All of a collection's documents, page by page; `timeout` is for each page."""
        return all_items(
            lambda token: self.list_documents(
                collection=collection,
                page_size=page_size,
                page_token=token,
                timeout=timeout,
                metadata=metadata,
            ),
            lambda page: page.documents,
        )

    def collections(
        self, *, page_size: int = 0, timeout: float | None = None, metadata: Metadata | None = None
    ) -> AsyncIterator[wire.Collection]:
        """All collections, page by page; `timeout` is for each page."""
        return all_items(
            lambda token: self.list_collections(
                page_size=page_size, page_token=token, timeout=timeout, metadata=metadata
            ),
            lambda page: page.collections,
        )


async def _deadline(content: bytes | Path | AsyncIterable[bytes]) -> float:
    if isinstance(content, bytes):
        size = len(content)
    elif isinstance(content, Path):
        size = (await asyncio.to_thread(content.stat)).st_size
    else:
        return INGEST_TIMEOUT_S
    return INGEST_BASE_TIMEOUT_S + size / INGEST_BYTES_A_SECOND


async def _send(
    call: "grpc.aio.StreamUnaryCall[wire.IngestDocumentRequest, wire.IngestDocumentResponse]",
    header: wire.DocumentHeader,
    content: bytes | Path | AsyncIterable[bytes],
) -> None:
    if not await _taken(call, wire.IngestDocumentRequest(header=header)):
        return
    async with aclosing(_chunks(content)) as chunks:
        async for chunk in chunks:
            if not await _taken(call, wire.IngestDocumentRequest(chunk=chunk)):
                return
    await call.done_writing()


async def _taken(
    call: "grpc.aio.StreamUnaryCall[wire.IngestDocumentRequest, wire.IngestDocumentResponse]",
    part: wire.IngestDocumentRequest,
) -> bool:
    """Sends a part; False where the service has answered already, and only its answer says why."""
    try:
        await call.write(part)
    except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
        return False
    return True


async def _chunks(content: bytes | Path | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    if isinstance(content, bytes):
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]
    elif isinstance(content, Path):
        with await asyncio.to_thread(content.open, "rb") as file:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
    else:
        async for piece in content:
            for start in range(0, len(piece), CHUNK_BYTES):
                yield piece[start : start + CHUNK_BYTES]
