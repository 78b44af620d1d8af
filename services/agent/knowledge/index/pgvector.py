"""The knowledge index on PostgreSQL with pgvector."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final

from sqlalchemy import Row, TextClause
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.agent.errors import CollectionNotFound, DocumentNotFound, EncoderMismatch
from services.agent.knowledge.bm25 import TermStatistics, bm25
from services.agent.knowledge.chunking import HEADING_SEPARATOR, LEAF_LEVEL, Chunk, passage_of
from services.agent.knowledge.index import pgvector_sql as sql
from services.agent.knowledge.index.base import (
    CollectionRecord,
    DocumentRecord,
    Hit,
    PreparedDocument,
    StoredChunk,
)
from services.agent.knowledge.index.pgvector_connection import (
    connect_once,
    is_fully_used,
    make_engine,
    reading,
    unavailable_where_unreachable,
    writing,
)
from services.agent.knowledge.index.pgvector_schema import MAX_INDEXED_DIMENSIONS, migrate
from services.agent.knowledge.tokenize import index_terms, query_terms

_SPARSE_CANDIDATES: Final = 200
_MAX_QUERY_TERMS: Final = 100
_EXACT_SEARCH_LEAVES: Final = 5_000
"""A collection up to this size is searched without short cuts, which is as fast there and misses nothing."""

_COMMON_TERM_SHARE: Final = 0.2
_ROWS_PER_INSERT: Final = 50


class PgvectorIndex:
    """KnowledgeIndex in tables of its own schema, `askback_knowledge`; opened for one encoder."""

    def __init__(self, engine: AsyncEngine, *, encoder: str, dimensions: int):
        self._engine = engine
        self._encoder = encoder
        self._dimensions = dimensions

    @classmethod
    async def open(cls, url: str, *, encoder: str, dimensions: int) -> "PgvectorIndex":
        """Connects and migrates; raises KnowledgeUnavailable, IndexUnusable."""
        engine = make_engine(url)
        try:
            with unavailable_where_unreachable():
                await connect_once(engine)
                await migrate(engine, dimensions=dimensions)
        except BaseException:
            await engine.dispose()
            raise
        return cls(engine, encoder=encoder, dimensions=dimensions)

    async def close(self) -> None:
        await self._engine.dispose()

    async def check(self) -> None:
        if is_fully_used(self._engine):
            # Its connections are at work, each for a few seconds at most.
            return
        async with reading(self._engine) as connection:
            await connection.execute(sql.CHECK)

    async def find_document(self, *, collection: str, filename: str) -> DocumentRecord | None:
        async with reading(self._engine) as connection:
            found = await _row(connection, sql.COLLECTION, name=collection)
            if found is None:
                return None
            self._refuse_other_encoder(found)
            row = await _row(connection, sql.DOCUMENT, collection_id=found.id, filename=filename)
            return None if row is None else _document(row, collection)

    async def replace_document(self, document: PreparedDocument, *, collection: str) -> DocumentRecord:
        async with writing(self._engine) as connection:
            # Locks the collection's row: writers of one collection follow each other, readers pass.
            owner = await _row(
                connection, sql.LOCK_OR_CREATE, name=collection, encoder=self._encoder, dimensions=self._dimensions
            )
            assert owner is not None
            self._refuse_other_encoder(owner)
            await self._remove(connection, owner.id, document.filename)
            leaf_count = len(document.vectors)
            row = await _row(
                connection,
                sql.INSERT_DOCUMENT,
                collection_id=owner.id,
                filename=document.filename,
                size_bytes=document.size_bytes,
                page_count=document.page_count,
                leaf_count=leaf_count,
                sha256=document.sha256,
                recipe=document.recipe,
            )
            assert row is not None
            await self._insert_chunks(connection, document, collection_id=owner.id, document_id=row.id)
            await connection.execute(sql.COUNT_TERMS_IN, {"collection_id": owner.id, "document_id": row.id})
            await connection.execute(sql.COUNT_DOCUMENT_IN, {"collection_id": owner.id, "document_id": row.id})
            return _document(row, collection)

    async def delete_document(self, *, collection: str, filename: str) -> int:
        async with writing(self._engine) as connection:
            owner = await _row(connection, sql.LOCK, name=collection)
            if owner is None:
                raise CollectionNotFound(collection)
            removed = await self._remove(connection, owner.id, filename)
            if removed is None:
                raise DocumentNotFound(collection=collection, filename=filename)
            await connection.execute(sql.DROP_EMPTY_COLLECTION, {"collection_id": owner.id})
            return removed

    async def list_documents(self, *, collection: str, limit: int, after: str | None = None) -> list[DocumentRecord]:
        async with reading(self._engine) as connection:
            owner = await _row(connection, sql.COLLECTION, name=collection)
            if owner is None:
                raise CollectionNotFound(collection)
            rows = await connection.execute(
                sql.LIST_DOCUMENTS, {"collection_id": owner.id, "after": after or "", "limit": limit}
            )
            return [_document(row, collection) for row in rows]

    async def list_collections(self, *, limit: int, after: str | None = None) -> list[CollectionRecord]:
        async with reading(self._engine) as connection:
            rows = await connection.execute(sql.LIST_COLLECTIONS, {"after": after or "", "limit": limit})
            return [
                CollectionRecord(
                    collection=row.name,
                    document_count=row.document_count,
                    chunk_count=row.leaf_count,
                    encoder=row.encoder,
                )
                for row in rows
            ]

    @asynccontextmanager
    async def view(self, collection: str) -> AsyncIterator["PgvectorView"]:
        async with reading(self._engine) as connection:
            found = await _row(connection, sql.COLLECTION, name=collection)
            if found is None:
                raise CollectionNotFound(collection)
            self._refuse_other_encoder(found)
            yield PgvectorView(connection, found)

    def _refuse_other_encoder(self, collection: Row[Any]) -> None:
        if (collection.encoder, collection.dimensions) != (self._encoder, self._dimensions):
            raise EncoderMismatch(
                collection=collection.name, encoder=collection.encoder, configured_encoder=self._encoder
            )

    @staticmethod
    async def _remove(connection: AsyncConnection, collection_id: int, filename: str) -> int | None:
        """Takes the document and its counts out; None where there was none."""
        row = await _row(connection, sql.DOCUMENT, collection_id=collection_id, filename=filename)
        if row is None:
            return None
        ids = {"collection_id": collection_id, "document_id": row.id}
        await connection.execute(sql.COUNT_TERMS_OUT, ids)
        await connection.execute(sql.COUNT_DOCUMENT_OUT, ids)
        await connection.execute(sql.DELETE_DOCUMENT, {"document_id": row.id})
        removed: int = row.leaf_count
        return removed

    async def _insert_chunks(
        self, connection: AsyncConnection, document: PreparedDocument, *, collection_id: int, document_id: int
    ) -> None:
        vectors = iter(document.vectors)
        chunks = iter(document.chunks)
        while batch := list(islice(chunks, _ROWS_PER_INSERT)):
            leaf_vectors = list(islice(vectors, sum(chunk.level == LEAF_LEVEL for chunk in batch)))
            columns = await asyncio.to_thread(_columns, batch, leaf_vectors)
            await connection.execute(
                sql.INSERT_CHUNKS,
                columns | {"document_id": document_id, "collection_id": collection_id, "dimensions": self._dimensions},
            )


class PgvectorView:
    """IndexView in one REPEATABLE READ transaction; each search has a savepoint, so that one may fail alone."""

    def __init__(self, connection: AsyncConnection, collection: Row[Any]):
        self._connection = connection
        self._collection_id: int = collection.id
        self._dimensions: int = collection.dimensions
        self._statistics = (int(collection.leaf_count), int(collection.term_total))

    async def search_vectors(self, vector: Sequence[float], *, limit: int) -> list[Hit]:
        values = {
            "collection_id": self._collection_id,
            "vector": _vector_literal(vector),
            "limit": limit,
        }
        async with self._connection.begin_nested():
            if self._statistics[0] <= _EXACT_SEARCH_LEAVES or self._dimensions > MAX_INDEXED_DIMENSIONS:
                rows = await self._connection.execute(sql.nearest_exactly(self._dimensions), values)
            else:
                # Without iterating, the graph's nearest may all belong to other collections.
                await self._connection.execute(sql.ITERATE_VECTOR_INDEX, {"ef_search": str(min(1000, 2 * limit))})
                rows = await self._connection.execute(sql.nearest_by_index(self._dimensions), values)
            return sorted((_hit(row) for row in rows), key=lambda hit: -hit.score)

    async def search_text(self, query: str, *, limit: int) -> list[Hit]:
        terms = query_terms(query)[:_MAX_QUERY_TERMS]
        async with self._connection.begin_nested():
            rows = await self._connection.execute(
                sql.TERM_FREQUENCIES, {"collection_id": self._collection_id, "terms": terms}
            )
            frequencies: dict[str, int] = {row.term: row.leaf_count for row in rows}
            if not frequencies:
                return []
            leaf_count, term_total = self._statistics
            candidates = await self._connection.execute(
                sql.TEXT_CANDIDATES,
                {
                    "collection_id": self._collection_id,
                    "query": _query_literal(_telling_terms(frequencies, leaf_count)),
                    "terms": list(frequencies),
                    "limit": _SPARSE_CANDIDATES,
                },
            )
            statistics = TermStatistics(leaf_count=leaf_count, term_total=term_total, document_frequencies=frequencies)
            scored = [
                (bm25(row.term_counts, length=row.term_count, statistics=statistics), _chunk_id(row))
                for row in candidates
            ]
            best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:limit]
            chunks = await self._load([chunk_id for _, chunk_id in best])
            return [Hit(chunks[chunk_id], score) for score, chunk_id in best]

    async def similarities(self, vector: Sequence[float], chunk_ids: Collection[str]) -> Mapping[str, float]:
        async with self._connection.begin_nested():
            rows = await self._connection.execute(
                sql.similarities(self._dimensions),
                _key_arrays(chunk_ids) | {"collection_id": self._collection_id, "vector": _vector_literal(vector)},
            )
            return {_chunk_id(row): row.similarity for row in rows}

    async def chunks(self, chunk_ids: Collection[str]) -> Mapping[str, StoredChunk]:
        async with self._connection.begin_nested():
            return await self._load(chunk_ids)

    async def _load(self, chunk_ids: Collection[str]) -> dict[str, StoredChunk]:
        if not chunk_ids:
            return {}
        rows = await self._connection.execute(
            sql.CHUNKS, _key_arrays(chunk_ids) | {"collection_id": self._collection_id}
        )
        return {(chunk := _stored(row)).chunk_id: chunk for row in rows}


async def _row(connection: AsyncConnection, statement: TextClause, **values: Any) -> Row[Any] | None:
    return (await connection.execute(statement, values)).one_or_none()


def _telling_terms(frequencies: Mapping[str, int], leaf_count: int) -> list[str]:
    """The terms to find candidates by: in a large collection none that a fifth of it holds, if there are others."""
    if leaf_count <= _EXACT_SEARCH_LEAVES:
        return list(frequencies)
    telling = [term for term, count in frequencies.items() if count <= leaf_count * _COMMON_TERM_SHARE]
    return telling or list(frequencies)


def _columns(chunks: Sequence[Chunk], leaf_vectors: Sequence[Sequence[float]]) -> dict[str, list[Any]]:
    vectors = iter(leaf_vectors)
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "levels",
            "ordinals",
            "parents",
            "page_numbers",
            "heading_paths",
            "bodies",
            "embeddings",
            "term_vectors",
            "term_counts",
        )
    }
    for chunk in chunks:
        leaf = chunk.level == LEAF_LEVEL
        terms = index_terms(chunk.passage) if leaf else []
        columns["levels"].append(chunk.level)
        columns["ordinals"].append(chunk.ordinal)
        columns["parents"].append(chunk.parent)
        columns["page_numbers"].append(chunk.page_number)
        columns["heading_paths"].append(HEADING_SEPARATOR.join(chunk.heading_path))
        columns["bodies"].append(chunk.text)
        columns["embeddings"].append(_vector_literal(next(vectors)) if leaf else None)
        columns["term_vectors"].append(_terms_literal(terms) if leaf else None)
        columns["term_counts"].append(len(terms) if leaf else None)
    return columns


def _vector_literal(vector: Sequence[float]) -> str:
    return f"[{','.join(format(float(value), '.7g') for value in vector)}]"


def _quoted(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


def _terms_literal(terms: Sequence[str]) -> str:
    """A tsvector with each term where it stands; PostgreSQL's own parser would cut "3.x" and "E-17" its way."""
    positions: dict[str, list[int]] = {}
    for position, term in enumerate(terms, start=1):
        positions.setdefault(term, []).append(position)
    return " ".join(f"{_quoted(term)}:{','.join(map(str, places))}" for term, places in positions.items())


def _query_literal(terms: Sequence[str]) -> str:
    return " | ".join(_quoted(term) for term in terms)


def _chunk_id(row: Row[Any]) -> str:
    return f"{row.document_id}.{row.level}.{row.ordinal}"


def _key_arrays(chunk_ids: Collection[str]) -> dict[str, list[int]]:
    keys = [tuple(map(int, chunk_id.split("."))) for chunk_id in chunk_ids]
    return {
        "document_ids": [key[0] for key in keys],
        "levels": [key[1] for key in keys],
        "ordinals": [key[2] for key in keys],
    }


def _stored(row: Row[Any]) -> StoredChunk:
    return StoredChunk(
        chunk_id=_chunk_id(row),
        parent_id=None if row.parent is None else f"{row.document_id}.{row.level - 1}.{row.parent}",
        level=row.level,
        filename=row.filename,
        page_number=row.page_number,
        text=passage_of(row.heading_path, row.body),
    )


def _hit(row: Row[Any]) -> Hit:
    return Hit(_stored(row), row.similarity)


def _document(row: Row[Any], collection: str) -> DocumentRecord:
    return DocumentRecord(
        collection=collection,
        filename=row.filename,
        size_bytes=row.size_bytes,
        page_count=row.page_count,
        chunk_count=row.leaf_count,
        sha256=row.sha256,
        recipe=row.recipe,
        ingest_time=row.ingest_time,
    )
