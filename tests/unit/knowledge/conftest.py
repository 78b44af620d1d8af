"""An index and encoders small enough to read, each able to fail where a test wants it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest

from services.agent.errors import CollectionNotFound, KnowledgeUnavailable
from services.agent.knowledge.embedding import Encoder, Vectors
from services.agent.knowledge.index.base import (
    CollectionRecord,
    DocumentRecord,
    Hit,
    IndexView,
    KnowledgeIndex,
    PreparedDocument,
    StoredChunk,
)
from services.agent.knowledge.tokenize import index_terms


class WordEncoder:
    """Texts that share words are near each other; it counts its calls, and fails while `broken`.

    While `held` is not set, calls for many texts wait for it, and `holding` tells that one does.
    """

    name = "words"
    dimensions = 32

    def __init__(self) -> None:
        self.calls = 0
        self.broken = False
        self.held: asyncio.Event | None = None
        self.holding = asyncio.Event()

    async def encode(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        if self.broken:
            raise ConnectionError("the encoder is away")
        if self.held is not None and len(texts) > 8:
            self.holding.set()
            await self.held.wait()
        vectors = np.full((len(texts), self.dimensions), 1e-3, dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for term in index_terms(text):
                row[hashlib.sha256(term.encode()).digest()[0] % self.dimensions] += 1
            row /= np.linalg.norm(row)
        return vectors

    async def close(self) -> None: ...


class ScriptedIndex:
    """One collection, "default", whose searches give what a test says; a part named in `broken` fails."""

    def __init__(self) -> None:
        self.dense: list[Hit] = []
        self.sparse: list[Hit] = []
        self.all_chunks: dict[str, StoredChunk] = {}
        self.broken: set[str] = set()
        self.limits: list[int] = []

    @asynccontextmanager
    async def view(self, collection: str) -> AsyncIterator[IndexView]:
        if "index" in self.broken:
            raise KnowledgeUnavailable
        if collection != "default" or not self.all_chunks:
            raise CollectionNotFound(collection)
        yield self

    async def search_vectors(self, vector: Sequence[float], *, limit: int) -> list[Hit]:
        self._fail_where_broken("dense")
        self.limits.append(limit)
        return self.dense[:limit]

    async def search_text(self, query: str, *, limit: int) -> list[Hit]:
        self._fail_where_broken("sparse")
        return self.sparse[:limit]

    async def similarities(self, vector: Sequence[float], chunk_ids: Collection[str]) -> Mapping[str, float]:
        return dict.fromkeys(chunk_ids, 0.25)

    async def chunks(self, chunk_ids: Collection[str]) -> Mapping[str, StoredChunk]:
        self._fail_where_broken("chunks")
        return {chunk_id: self.all_chunks[chunk_id] for chunk_id in chunk_ids}

    def _fail_where_broken(self, part: str) -> None:
        if part in self.broken:
            raise ConnectionError(f"{part} is away")

    async def find_document(self, *, collection: str, filename: str) -> DocumentRecord | None:
        raise KnowledgeUnavailable

    async def replace_document(self, document: PreparedDocument, *, collection: str) -> DocumentRecord:
        raise KnowledgeUnavailable

    async def delete_document(self, *, collection: str, filename: str) -> int:
        raise KnowledgeUnavailable

    async def list_documents(self, *, collection: str, limit: int, after: str | None = None) -> list[DocumentRecord]:
        raise KnowledgeUnavailable

    async def list_collections(self, *, limit: int, after: str | None = None) -> list[CollectionRecord]:
        raise KnowledgeUnavailable

    async def check(self) -> None:
        raise KnowledgeUnavailable

    async def close(self) -> None: ...


def _tree(shape: Sequence[Sequence[int]]) -> dict[str, StoredChunk]:
    """Chunks by id: one top for each entry, with its parents, each of so many leaves ("0", "0.1", "0.1.2")."""
    chunks: dict[str, StoredChunk] = {}

    def add(chunk_id: str, parent_id: str | None, level: int) -> None:
        chunks[chunk_id] = StoredChunk(
            chunk_id=chunk_id,
            parent_id=parent_id,
            level=level,
            filename="a.md",
            page_number="",
            text=f"text of {chunk_id}",
        )

    for top, parents in enumerate(shape):
        add(f"{top}", None, 1)
        for parent, leaves in enumerate(parents):
            add(f"{top}.{parent}", f"{top}", 2)
            for leaf in range(leaves):
                add(f"{top}.{parent}.{leaf}", f"{top}.{parent}", 3)
    return chunks


@pytest.fixture
def encoder() -> WordEncoder:
    _: type[Encoder] = WordEncoder
    return WordEncoder()


@pytest.fixture
def index() -> ScriptedIndex:
    _: type[KnowledgeIndex] = ScriptedIndex
    return ScriptedIndex()


@pytest.fixture
def tree() -> Callable[[Sequence[Sequence[int]]], dict[str, StoredChunk]]:
    return _tree
