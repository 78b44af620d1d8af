"""A document's bytes into the index."""

import asyncio
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import structlog

from services.agent.knowledge.chunking import CHUNK_RECIPE, LEAF_LEVEL, chunk_document
from services.agent.knowledge.embedding import Encoder, Vectors
from services.agent.knowledge.index.base import DocumentRecord, KnowledgeIndex, PreparedDocument
from services.agent.knowledge.loading.processes import DocumentReader, ReadingLimits
from services.agent.knowledge.naming import DEFAULT_COLLECTION
from services.runtime.errors import TooLarge

MAX_DOCUMENT_BYTES: Final = 32 * 1024 * 1024
_AT_ONCE: Final = 2
"""Documents that are worked on at the same time; more wait, so that memory has a bound."""

_LARGE_BYTES: Final = 256 * 1024
"""Of documents past it one is worked on at a time: a small one never waits an hour behind two large ones."""

_UPLOADS_AT_ONCE: Final = 8
"""Documents whose bytes are in memory at the same time, worked on or waiting."""

_TEXTS_PER_ENCODE: Final = 64
_log = structlog.get_logger()


class Ingestion:
    """Reads, cuts, embeds and stores documents; what takes time with their size runs off the event loop."""

    def __init__(self, index: KnowledgeIndex, encoder: Encoder, *, reading: ReadingLimits | None = None):
        self._index = index
        self._encoder = encoder
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="ingest")
        self._reader = DocumentReader(at_once=_AT_ONCE, limits=reading)
        self.uploads = asyncio.Semaphore(_UPLOADS_AT_ONCE)
        """The place that whoever gathers a document's bytes must hold, from the first byte until it is ingested."""
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._large = asyncio.Semaphore(_AT_ONCE - 1)
        self._names: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def ingest(
        self, filename: str, content: bytes, *, collection: str = DEFAULT_COLLECTION
    ) -> tuple[DocumentRecord, bool]:
        """Stores the document; True where the same bytes were there already and nothing was done.

        Both names must be free of faults, and the file's ending be one that is known. Two calls for one name run
        one after the other. Raises TooLarge, DocumentUnreadable, EncoderMismatch, KnowledgeUnavailable; then, and
        where the call is cancelled, the older document is as it was.
        """
        if len(content) > MAX_DOCUMENT_BYTES:
            raise TooLarge("a document", limit=MAX_DOCUMENT_BYTES, actual=len(content))
        lock = self._names.setdefault((collection, filename), asyncio.Lock())
        async with AsyncExitStack() as held:
            await held.enter_async_context(lock)
            if len(content) > _LARGE_BYTES:
                await held.enter_async_context(self._large)
            await held.enter_async_context(self._places)
            return await self._replace(filename, content, collection=collection)

    def close(self) -> None:
        self._reader.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _replace(self, filename: str, content: bytes, *, collection: str) -> tuple[DocumentRecord, bool]:
        loop = asyncio.get_running_loop()
        sha256 = await loop.run_in_executor(self._threads, lambda: hashlib.sha256(content).hexdigest())
        known = await self._index.find_document(collection=collection, filename=filename)
        if known is not None and (known.sha256, known.recipe) == (sha256, CHUNK_RECIPE):
            return known, True
        loaded = await self._reader.read(filename, content)
        chunks = await loop.run_in_executor(self._threads, chunk_document, loaded.blocks)
        vectors = await self._embedded([chunk.passage for chunk in chunks if chunk.level == LEAF_LEVEL])
        prepared = PreparedDocument(
            filename=filename,
            size_bytes=len(content),
            page_count=loaded.page_count,
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
