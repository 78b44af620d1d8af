"""The port of a knowledge index, and what passes through it."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from services.agent.knowledge.chunking import Chunk
from services.agent.knowledge.embedding import Vectors


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document as the index knows it; `chunk_count` is its leaves."""

    collection: str
    filename: str
    size_bytes: int
    page_count: int
    chunk_count: int
    sha256: str
    recipe: str
    ingest_time: datetime


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    collection: str
    document_count: int
    chunk_count: int
    encoder: str


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be stored: parents stand before their children, `vectors` are of the leaves in order.

    `recipe` names how it was cut: the same bytes by another recipe are another document.
    """

    filename: str
    size_bytes: int
    page_count: int
    sha256: str
    recipe: str
    chunks: Sequence[Chunk]
    vectors: Vectors = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it is found; `text` is its passage, heading path first."""

    chunk_id: str
    parent_id: str | None
    level: int
    filename: str
    page_number: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    chunk: StoredChunk
    score: float


class IndexView(Protocol):
    """One collection as it was at one moment: all that a view returns is of the same documents.

    A search that fails raises, and leaves the view's other searches usable where the connection still is.
    """

    async def search_vectors(self, vector: Sequence[float], *, limit: int) -> list[Hit]:
        """The leaves nearest to the vector, nearest first, scored by cosine similarity."""
        ...

    async def search_text(self, query: str, *, limit: int) -> list[Hit]:
        """The leaves that hold the question's terms, best first by BM25; none where no term is known."""
        ...

    async def similarities(self, vector: Sequence[float], chunk_ids: Collection[str]) -> Mapping[str, float]:
        """Cosine similarity of these leaves to the vector."""
        ...

    async def chunks(self, chunk_ids: Collection[str]) -> Mapping[str, StoredChunk]:
        """These chunks, of any level, by id."""
        ...


class KnowledgeIndex(Protocol):
    """Documents in collections, cut into chunks and searchable.

    Every method raises KnowledgeUnavailable where the index cannot be reached. An index is opened for one
    encoder; a collection that another one filled is refused with EncoderMismatch, except to be listed or
    deleted from. A collection exists while it has documents.
    """

    async def find_document(self, *, collection: str, filename: str) -> DocumentRecord | None:
        """The document as it is now, or None; raises EncoderMismatch."""
        ...

    async def replace_document(self, document: PreparedDocument, *, collection: str) -> DocumentRecord:
        """Stores the document in place of an older one of its name, at once and as a whole.

        A view opened before it returns holds the older one or the newer one, never a part of either. Two
        replacements of one name follow each other. Raises EncoderMismatch; after any exception, and where it
        is cancelled, the older one is as it was.
        """
        ...

    async def delete_document(self, *, collection: str, filename: str) -> int:
        """Removes the document and returns how many leaves it had; raises CollectionNotFound, DocumentNotFound."""
        ...

    async def list_documents(self, *, collection: str, limit: int, after: str | None = None) -> list[DocumentRecord]:
        """Documents by name in byte order, those after the name `after`; raises CollectionNotFound."""
        ...

    async def list_collections(self, *, limit: int, after: str | None = None) -> list[CollectionRecord]:
        """Collections by name in byte order, those after the name `after`."""
        ...

    def view(self, collection: str) -> AbstractAsyncContextManager[IndexView]:
        """Opens a view; raises CollectionNotFound, EncoderMismatch."""
        ...

    async def check(self) -> None:
        """Returns where the index can be read."""
        ...

    async def close(self) -> None: ...


class IndexUnusable(Exception):
    """The index's server is reached but cannot serve as one; the text says what it lacks, in one line."""
