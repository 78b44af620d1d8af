"""Empty indexes of every kind, and documents to put into them."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import numpy as np
import pytest

from services.agent.knowledge.chunking import LEAF_LEVEL, chunk_document
from services.agent.knowledge.index.base import KnowledgeIndex, PreparedDocument
from services.agent.knowledge.index.pgvector import PgvectorIndex
from services.agent.knowledge.loading import Block
from services.agent.knowledge.tokenize import index_terms

DIMENSIONS = 16
OpenIndex = Callable[..., Awaitable[KnowledgeIndex]]


Embed = Callable[..., list[float]]
Prepare = Callable[..., PreparedDocument]


def _embed(text: str, *, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector by the text's words: texts that share words are near each other."""
    vector = np.full(dimensions, 1e-3)
    for term in index_terms(text):
        vector[hashlib.sha256(term.encode()).digest()[0] % dimensions] += 1
    return [float(value) for value in vector / np.linalg.norm(vector)]


@pytest.fixture(scope="session")
def embed() -> Embed:
    return _embed


@pytest.fixture(scope="session")
def prepare() -> Prepare:
    return _prepare


def _prepare(
    filename: str, sections: Sequence[str], *, page_number: str = "", dimensions: int = DIMENSIONS
) -> PreparedDocument:
    """A document with one leaf for each section, each of which is made long enough to stand alone."""
    blocks: list[Block] = []
    for number, section in enumerate(sections, start=1):
        blocks += [Block(f"Part {number}", 2, page_number), Block(section + " padding" * 20, 0, page_number)]
    chunks = chunk_document(blocks)
    leaves = [chunk for chunk in chunks if chunk.level == LEAF_LEVEL]
    assert len(leaves) == len(sections)
    return PreparedDocument(
        filename=filename,
        size_bytes=sum(map(len, sections)),
        page_count=1 if page_number else 0,
        sha256=hashlib.sha256("\0".join(sections).encode()).hexdigest(),
        recipe="1",
        chunks=chunks,
        vectors=np.array([_embed(leaf.passage, dimensions=dimensions) for leaf in leaves], dtype=np.float32),
    )


@pytest.fixture(params=["pgvector"])
async def open_index(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[OpenIndex]:
    """Opens the test's one index, by default for the encoder "words"; also several times over."""
    async with AsyncExitStack() as stack:

        async def open_one(*, encoder: str = "words", dimensions: int = DIMENSIONS) -> KnowledgeIndex:
            assert request.param == "pgvector"
            index = await PgvectorIndex.open(database_url, encoder=encoder, dimensions=dimensions)
            stack.push_async_callback(index.close)
            return index

        yield open_one


@pytest.fixture
async def index(open_index: OpenIndex) -> KnowledgeIndex:
    return await open_index()
