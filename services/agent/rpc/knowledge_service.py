"""askback.agent.v1.KnowledgeService."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from askback.agent.v1 import knowledge_service_pb2 as pb
from askback.agent.v1 import knowledge_service_pb2_grpc
from services.agent.knowledge.knowledge_base import KnowledgeBase
from services.agent.rpc import documents

Context = grpc.aio.ServicerContext[Any, Any]


class KnowledgeServicer(knowledge_service_pb2_grpc.KnowledgeServiceServicer):
    def __init__(self, knowledge: KnowledgeBase) -> None:
        self._knowledge = knowledge

    async def IngestDocument(
        self, request_iterator: AsyncIterator[pb.IngestDocumentRequest], context: Context
    ) -> pb.IngestDocumentResponse:
        name = await documents.upload_name(request_iterator)
        async with self._knowledge.upload_place:
            content = await documents.upload_content(request_iterator)
            record, unchanged = await self._knowledge.ingest(name.filename, content, collection=name.collection)
        return pb.IngestDocumentResponse(document=documents.document(record), unchanged=unchanged)

    async def ListDocuments(self, request: pb.ListDocumentsRequest, context: Context) -> pb.ListDocumentsResponse:
        page = documents.documents_page(request)
        records = await self._knowledge.list_documents(
            collection=page.collection, limit=page.size + 1, after=page.after
        )
        return documents.documents_reply(page, records)

    async def ListCollections(self, request: pb.ListCollectionsRequest, context: Context) -> pb.ListCollectionsResponse:
        page = documents.collections_page(request)
        records = await self._knowledge.list_collections(limit=page.size + 1, after=page.after)
        return documents.collections_reply(page, records)

    async def DeleteDocument(self, request: pb.DeleteDocumentRequest, context: Context) -> pb.DeleteDocumentResponse:
        name = documents.document_name(request)
        deleted = await self._knowledge.delete_document(name.filename, collection=name.collection)
        return pb.DeleteDocumentResponse(deleted_chunk_count=deleted)

    async def SearchKnowledge(self, request: pb.SearchKnowledgeRequest, context: Context) -> pb.SearchKnowledgeResponse:
        search = documents.search_request(request)
        found = await self._knowledge.search.retrieve(search.query, collection=search.collection, top_k=search.top_k)
        return documents.search_reply(found)
