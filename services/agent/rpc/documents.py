"""Wire to model and back for documents and searches; all that a caller may send is checked here, once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from askback.agent.v1 import knowledge_service_pb2 as pb
from askback.rag.v1 import trace_pb2
from services.agent.errors import KnowledgeUnavailable
from services.agent.knowledge.base import Retrieval
from services.agent.knowledge.index.base import CollectionRecord, DocumentRecord
from services.agent.knowledge.ingest import MAX_DOCUMENT_BYTES
from services.agent.rpc import names
from services.agent.texts import MAX_TEXT_BYTES
from services.agent.wire import to_wire
from services.runtime import page_token
from services.runtime.checks import Checks
from services.runtime.errors import InvalidField, TimeLimit, TooLarge
from services.runtime.page_token import PagedQuery

MAX_TOP_K = 50
PART_LIMIT_S = 60.0
"""How long an upload may keep others waiting without sending anything."""


@dataclass(frozen=True, slots=True)
class DocumentName:
    collection: str
    filename: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    query: PagedQuery
    size: int
    after: str | None
    collection: str = ""
    """Of a page of documents."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    collection: str
    query: str
    top_k: int | None


async def upload_name(parts: AsyncIterator[pb.IngestDocumentRequest]) -> DocumentName:
    """What the first part names, read before any byte of the document is."""
    part = await anext(aiter(parts), None)
    if part is None or part.WhichOneof("part") != "header":
        raise InvalidField.of("header", "must be the first part")
    checks = Checks()
    name = DocumentName(
        names.collection(checks, "header.collection", part.header.collection),
        names.readable_filename(checks, "header.filename", part.header.filename),
    )
    checks.done()
    return name


async def upload_content(
    parts: AsyncIterator[pb.IngestDocumentRequest], *, part_limit_s: float = PART_LIMIT_S
) -> bytes:
    """The bytes of the parts behind the first. Raises TooLarge as soon as they are, TimeLimit where none come."""
    content = BytesIO()
    while (part := await _next(parts, limit_s=part_limit_s)) is not None:
        if part.WhichOneof("part") == "header":
            raise InvalidField.of("header", "must be the first part alone")
        content.write(part.chunk)
        if content.tell() > MAX_DOCUMENT_BYTES:
            raise TooLarge("a document", limit=MAX_DOCUMENT_BYTES, actual=content.tell())
    # The buffer's own bytes, without a copy.
    return content.getvalue()


async def _next(parts: AsyncIterator[pb.IngestDocumentRequest], *, limit_s: float) -> pb.IngestDocumentRequest | None:
    try:
        async with asyncio.timeout(limit_s):
            return await anext(aiter(parts), None)
    except TimeoutError:
        # It holds a place that others wait for.
        raise TimeLimit("the next part of a document", limit_s=limit_s) from None


def document(record: DocumentRecord) -> pb.Document:
    written = pb.Document(
        collection=record.collection,
        filename=record.filename,
        size_bytes=record.size_bytes,
        page_count=record.page_count,
        chunk_count=record.chunk_count,
        sha256=record.sha256,
    )
    written.ingest_time.FromDatetime(record.ingest_time)
    return written


def document_name(request: pb.DeleteDocumentRequest) -> DocumentName:
    checks = Checks()
    name = DocumentName(
        names.collection(checks, "collection", request.collection),
        names.filename(checks, "filename", request.filename),
    )
    checks.done()
    return name


def documents_page(request: pb.ListDocumentsRequest) -> PageRequest:
    checks = Checks()
    collection = names.collection(checks, "collection", request.collection)
    query = PagedQuery("ListDocuments", "", (collection,))
    return _page(checks, query, request.page_size, request.page_token, collection=collection)


def documents_reply(page: PageRequest, records: Sequence[DocumentRecord]) -> pb.ListDocumentsResponse:
    shown = records[: page.size]
    token = page_token.encode(page.query, (shown[-1].filename,)) if len(records) > page.size else ""
    return pb.ListDocumentsResponse(documents=map(document, shown), next_page_token=token)


def collections_page(request: pb.ListCollectionsRequest) -> PageRequest:
    return _page(Checks(), PagedQuery("ListCollections", ""), request.page_size, request.page_token)


def collections_reply(page: PageRequest, records: Sequence[CollectionRecord]) -> pb.ListCollectionsResponse:
    shown = records[: page.size]
    token = page_token.encode(page.query, (shown[-1].collection,)) if len(records) > page.size else ""
    collections = [
        pb.Collection(
            collection=record.collection,
            document_count=record.document_count,
            chunk_count=record.chunk_count,
            encoder=record.encoder,
        )
        for record in shown
    ]
    return pb.ListCollectionsResponse(collections=collections, next_page_token=token)


def search_request(request: pb.SearchKnowledgeRequest) -> SearchRequest:
    checks = Checks()
    search = SearchRequest(
        collection=names.collection(checks, "collection", request.collection),
        query=checks.text("query", request.query, at_most=MAX_TEXT_BYTES, required=True),
        top_k=checks.number("top_k", request.top_k, at_least=0, at_most=MAX_TOP_K) or None,
    )
    checks.done()
    return search


def search_reply(found: Retrieval) -> pb.SearchKnowledgeResponse:
    """Raises KnowledgeUnavailable where every way of searching failed: that is not "nothing found"."""
    if found.stats.mode == "failed":
        raise KnowledgeUnavailable
    reply = pb.SearchKnowledgeResponse(
        chunks=[to_wire(chunk, trace_pb2.RetrievedChunk) for chunk in found.chunks],
        retrieval=to_wire(found.stats, trace_pb2.RetrievalStats),
    )
    if found.auto_merge is not None:
        reply.auto_merge.CopyFrom(to_wire(found.auto_merge, trace_pb2.AutoMergeStats))
    if found.rerank is not None:
        reply.rerank.CopyFrom(to_wire(found.rerank, trace_pb2.RerankStats))
    return reply


def _page(checks: Checks, query: PagedQuery, size: int, token: str, *, collection: str = "") -> PageRequest:
    size = checks.page_size(size)
    checks.done()
    after = page_token.decode(query, token, str)[0] if token else None
    return PageRequest(query, size, str(after) if after is not None else None, collection)
