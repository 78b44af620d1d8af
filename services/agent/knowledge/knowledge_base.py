"""The documents that the agent answers from, as the rest of the service sees them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from services.agent.errors import CollectionNotFound, DocumentNotFound
from services.agent.knowledge.base import KnowledgeSearch
from services.agent.knowledge.embedding import BuiltInEncoder, Encoder
from services.agent.knowledge.index.base import CollectionRecord, DocumentRecord, KnowledgeIndex
from services.agent.knowledge.index.pgvector import PgvectorIndex
from services.agent.knowledge.ingest import Ingestion
from services.agent.knowledge.naming import DEFAULT_COLLECTION, collection_name, document_filename
from services.agent.knowledge.retrieve import RetrievalSettings, Retriever


class KnowledgeBase:
    """Ingests, lists, deletes and searches documents.

    Collections are named by `collection`, empty for "default", which counts as there before it has a
    document. Every method raises InvalidField for a name that none can have.
    """

    def __init__(self, index: KnowledgeIndex, encoder: Encoder, ingestion: Ingestion, search: KnowledgeSearch):
        self._index = index
        self._encoder = encoder
        self._ingestion = ingestion
        self.search = search

    async def ingest(self, filename: str, content: bytes, *, collection: str = "") -> tuple[DocumentRecord, bool]:
        """As Ingestion.ingest: the document, and whether the same bytes were there already."""
        return await self._ingestion.ingest(filename, content, collection=collection)

    async def list_documents(
        self, *, collection: str = "", limit: int, after: str | None = None
    ) -> list[DocumentRecord]:
        """Documents by name, those after the name `after`; raises CollectionNotFound, KnowledgeUnavailable."""
        name = collection_name(collection)
        try:
            return await self._index.list_documents(collection=name, limit=limit, after=after)
        except CollectionNotFound:
            if name == DEFAULT_COLLECTION:
                return []
            raise

    async def list_collections(self, *, limit: int, after: str | None = None) -> list[CollectionRecord]:
        """Collections that have documents, by name, those after the name `after`; raises KnowledgeUnavailable."""
        return await self._index.list_collections(limit=limit, after=after)

    async def delete_document(self, filename: str, *, collection: str = "") -> int:
        """Removes a document and returns how many leaves it had.

        Raises CollectionNotFound, DocumentNotFound, KnowledgeUnavailable.
        """
        name = collection_name(collection)
        document_filename(filename)
        try:
            return await self._index.delete_document(collection=name, filename=filename)
        except CollectionNotFound:
            if name == DEFAULT_COLLECTION:
                raise DocumentNotFound(collection=name, filename=filename) from None
            raise

    async def warm(self) -> None:
        """Loads the encoder, so that the first question does not wait for it."""
        await self._encoder.encode(["ready"])


@asynccontextmanager
async def open_knowledge(
    url: str, settings: RetrievalSettings | None = None, *, encoder: Encoder | None = None
) -> AsyncIterator[KnowledgeBase]:
    """Opens the index at `url` (postgresql://…) with the built-in encoder, unless another is given.

    Raises KnowledgeUnavailable where it cannot be reached, IndexUnusable where it cannot serve as an index.
    """
    async with AsyncExitStack() as stack:
        encoder = encoder or BuiltInEncoder()
        stack.push_async_callback(encoder.close)
        index = await PgvectorIndex.open(url, encoder=encoder.name, dimensions=encoder.dimensions)
        stack.push_async_callback(index.close)
        ingestion = Ingestion(index, encoder)
        stack.callback(ingestion.close)
        retriever = Retriever(index, encoder, settings or RetrievalSettings())
        yield KnowledgeBase(index, encoder, ingestion, retriever)
