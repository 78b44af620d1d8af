"""Wire to model and back for documents and searches; all that a caller may send is checked here, or by name."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from askback.agent.v1 import knowledge_service_pb2 as pb
from askback.rag.v1 import trace_pb2
from services.agent.errors import KnowledgeUnavailable
from services.agent.knowledge.base import Retrieval
from services.agent.knowledge.index.base import CollectionRecord, DocumentRecord
from services.agent.knowledge.ingest import MAX_DOCUMENT_BYTES
from services.agent.knowledge.naming import collection_name, document_filename
from services.agent.wire import to_wire
from services.runtime import page_token
from services.runtime.checks import Checks
from services.runtime.errors import InvalidField, TooLarge
from services.runtime.page_token import PagedQuery

MAX_QUERY_BYTES = 32_768
MAX_TOP_K = 50


@dataclass(frozen=True, slots=True)
class Upload:
    collection: str
    filename: str
    content: bytes


@dataclass(frozen=True, slots=True)
class PageRequest:
    query: PagedQuery
    size: int
    after: str | None


@dataclass(frozen=True, slots=True)
class SearchRequest:
    collection: str
    query: str
    top_k: int | None


async def received(parts: AsyncIterator[pb.IngestDocumentRequest]) -> Upload:
    """The document, once its last part has come. Raises InvalidField, or TooLarge as soon as it is."""
    header: pb.DocumentHeader | None = None
    content = bytearray()
    async for part in parts:
        if header is None:
            if part.WhichOneof("part") != "header":
                raise InvalidField.of("header", "must be the first part")
            header = part.header
            # Refused before its bytes are sent, not after.
            collection_name(header.collection, field="header.collection")
            document_filename(header.filename, field="header.filename")
        elif part.WhichOneof("part") == "header":
            raise InvalidField.of("header", "must be the first part alone")
        else:
            content += part.chunk
            if len(content) > MAX_DOCUMENT_BYTES:
                raise TooLarge("a document", limit=MAX_DOCUMENT_BYTES, actual=len(content))
    if header is None:
        raise InvalidField.of("header", "must be the first part")
    return Upload(header.collection, header.filename, bytes(content))


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


def documents_page(request: pb.ListDocumentsRequest) -> PageRequest:
    collection = collection_name(request.collection)
    return _page(PagedQuery("ListDocuments", "", (collection,)), request.page_size, request.page_token)


def documents_reply(page: PageRequest, records: Sequence[DocumentRecord]) -> pb.ListDocumentsResponse:
    shown = records[: page.size]
    token = page_token.encode(page.query, (shown[-1].filename,)) if len(records) > page.size else ""
    return pb.ListDocumentsResponse(documents=map(document, shown), next_page_token=token)


def collections_page(request: pb.ListCollectionsRequest) -> PageRequest:
    return _page(PagedQuery("ListCollections", ""), request.page_size, request.page_token)


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
        collection=collection_name(request.collection),
        query=checks.text("query", request.query, at_most=MAX_QUERY_BYTES, required=True),
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


def _page(query: PagedQuery, size: int, token: str) -> PageRequest:
    checks = Checks()
    size = checks.page_size(size)
    checks.done()
    after = page_token.decode(query, token, str)[0] if token else None
    return PageRequest(query, size, str(after) if after is not None else None)
