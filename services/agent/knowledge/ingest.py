"""A document's bytes into the index."""

import asyncio
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import structlog

from services.agent.knowledge.chunking import CHUNK_RECIPE, LEAF_LEVEL, Chunk, chunk_document
from services.agent.knowledge.embedding import Encoder, Vectors
from services.agent.knowledge.index.base import DocumentRecord, KnowledgeIndex, PreparedDocument
from services.agent.knowledge.loading import load_document, loader_for
from services.agent.knowledge.naming import collection_name, document_filename
from services.runtime.errors import TooLarge

MAX_DOCUMENT_BYTES: Final = 32 * 1024 * 1024
_AT_ONCE: Final = 2
"""Documents that are worked on at the same time; more wait, so that memory has a bound."""

_TEXTS_PER_ENCODE: Final = 64
_log = structlog.get_logger()


class Ingestion:
    """Reads, cuts, embeds and stores documents; what takes time with their size runs off the event loop."""

    def __init__(self, index: KnowledgeIndex, encoder: Encoder):
        self._index = index
        self._encoder = encoder
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="ingest")
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._names: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def ingest(self, filename: str, content: bytes, *, collection: str = "") -> tuple[DocumentRecord, bool]:
        """Stores the document; True where the same bytes were there already and nothing was done.

        Two calls for one name run one after the other. Raises InvalidField (`header.collection`,
        `header.filename`), TooLarge, DocumentUnreadable, EncoderMismatch, KnowledgeUnavailable; then, and
        where the call is cancelled, the older document is as it was.
        """
        collection = collection_name(collection, field="header.collection")
        filename = document_filename(filename, field="header.filename")
        loader_for(filename)
        if len(content) > MAX_DOCUMENT_BYTES:
            raise TooLarge("a document", limit=MAX_DOCUMENT_BYTES, actual=len(content))
        lock = self._names.setdefault((collection, filename), asyncio.Lock())
        async with lock, self._places:
            return await self._replace(filename, content, collection=collection)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _replace(self, filename: str, content: bytes, *, collection: str) -> tuple[DocumentRecord, bool]:
        loop = asyncio.get_running_loop()
        sha256 = await loop.run_in_executor(self._threads, lambda: hashlib.sha256(content).hexdigest())
        known = await self._index.find_document(collection=collection, filename=filename)
        if known is not None and (known.sha256, known.recipe) == (sha256, CHUNK_RECIPE):
            return known, True
        page_count, chunks = await loop.run_in_executor(self._threads, _cut, filename, content)
        vectors = await self._embedded([chunk.passage for chunk in chunks if chunk.level == LEAF_LEVEL])
        prepared = PreparedDocument(
            filename=filename,
            size_bytes=len(content),
            page_count=page_count,
            sha256=sha256,
            recipe=CHUNK_RECIPE,
            chunks=chunks,
            vectors=vectors,
        )
        record = await self._index.replace_document(prepared, collection=collection)
        _log.info("knowledge.ingested", collection=collection, size_bytes=len(content), chunks=record.chunk_count)
        return record, False

    async def _embedded(self, passages: Sequence[str]) -> Vectors:
        vectors = np.empty((len(passages), self._encoder.dimensions), dtype=np.float32)
        for start in range(0, len(passages), _TEXTS_PER_ENCODE):
            batch = passages[start : start + _TEXTS_PER_ENCODE]
            vectors[start : start + len(batch)] = await self._encoder.encode(batch)
        return vectors


def _cut(filename: str, content: bytes) -> tuple[int, list[Chunk]]:
    loaded = load_document(filename, content)
    return loaded.page_count, chunk_document(loaded.blocks)
