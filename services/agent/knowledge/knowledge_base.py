"""The documents that the agent answers from, as the rest of the service sees them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from services.agent.errors import CollectionNotFound, DocumentNotFound, KnowledgeUnavailable
from services.agent.knowledge.base import KnowledgeSearch
from services.agent.knowledge.embedding import BuiltInEncoder, Encoder
from services.agent.knowledge.index.base import CollectionRecord, DocumentRecord, KnowledgeIndex
from services.agent.knowledge.index.pgvector import PgvectorIndex
from services.agent.knowledge.ingest import Ingestion
from services.agent.knowledge.loading.processes import ReadingLimits
from services.agent.knowledge.naming import DEFAULT_COLLECTION
from services.agent.knowledge.retrieve import RetrievalSettings, Retriever


class KnowledgeBase:
    """Ingests, lists, deletes and searches documents.

    Names must be free of faults (naming.py): whoever takes them from a caller sees to that. The collection
    "default" counts as there before it has a document.
    """

    def __init__(self, index: KnowledgeIndex, encoder: Encoder, ingestion: Ingestion, search: KnowledgeSearch):
        self._index = index
        self._encoder = encoder
        self._ingestion = ingestion
        self.search = search

    @property
    def upload_place(self) -> AbstractAsyncContextManager[None]:
        """One of the few places for a document's bytes; to be held from the first byte until it is ingested."""
        return self._ingestion.uploads

    async def ingest(
        self, filename: str, content: bytes, *, collection: str = DEFAULT_COLLECTION
    ) -> tuple[DocumentRecord, bool]:
        """As Ingestion.ingest: the document, and whether the same bytes were there already."""
        return await self._ingestion.ingest(filename, content, collection=collection)

    async def list_documents(
        self, *, collection: str = DEFAULT_COLLECTION, limit: int, after: str | None = None
    ) -> list[DocumentRecord]:
        """Documents by name, those after the name `after`; raises CollectionNotFound, KnowledgeUnavailable."""
        try:
            return await self._index.list_documents(collection=collection, limit=limit, after=after)
        except CollectionNotFound:
            if collection == DEFAULT_COLLECTION:
                return []
            raise

    async def require_collection(self, collection: str) -> None:
        """Raises CollectionNotFound; nothing where the index cannot be reached, since it may be there."""
        try:
            await self.list_documents(collection=collection, limit=1)
        except KnowledgeUnavailable:
            return

    async def list_collections(self, *, limit: int, after: str | None = None) -> list[CollectionRecord]:
        """Collections that have documents, by name, those after the name `after`; raises KnowledgeUnavailable."""
        return await self._index.list_collections(limit=limit, after=after)

    async def delete_document(self, filename: str, *, collection: str = DEFAULT_COLLECTION) -> int:
        """Removes a document and returns how many leaves it had.

        Raises CollectionNotFound, DocumentNotFound, KnowledgeUnavailable.
        """
        try:
            return await self._index.delete_document(collection=collection, filename=filename)
        except CollectionNotFound:
            if collection == DEFAULT_COLLECTION:
                raise DocumentNotFound(collection=collection, filename=filename) from None
            raise

    async def is_ready(self) -> bool:
        """Whether the index can be read."""
        try:
            await self._index.check()
        except KnowledgeUnavailable:
            return False
        return True

    async def warm(self) -> None:
        """Loads the encoder, so that the first question does not wait for it."""
        await self._encoder.encode(["ready"])


@asynccontextmanager
async def open_knowledge(
    url: str,
    settings: RetrievalSettings | None = None,
    *,
    encoder: Encoder | None = None,
    reading: ReadingLimits | None = None,
) -> AsyncIterator[KnowledgeBase]:
    """Opens the index at `url` (postgresql://…) with the built-in encoder, unless another is given.

    Raises KnowledgeUnavailable where it cannot be reached, IndexUnusable where it cannot serve as an index.
    """
    async with AsyncExitStack() as stack:
        encoder = encoder or BuiltInEncoder()
        stack.push_async_callback(encoder.close)
        index = await PgvectorIndex.open(url, encoder=encoder.name, dimensions=encoder.dimensions)
        stack.push_async_callback(index.close)
        ingestion = Ingestion(index, encoder, reading=reading)
        stack.callback(ingestion.close)
        retriever = Retriever(index, encoder, settings or RetrievalSettings())
        yield KnowledgeBase(index, encoder, ingestion, retriever)
