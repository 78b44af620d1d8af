"""The index's ways to its PostgreSQL, and what becomes of a view whose connection is lost."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import numpy as np
import pytest

from services.agent.knowledge.chunking import LEAF_LEVEL, chunk_document
from services.agent.knowledge.index.base import IndexUnusable, PreparedDocument
from services.agent.knowledge.index.pgvector import PgvectorIndex
from services.agent.knowledge.loading import Block


async def open_index(url: str) -> PgvectorIndex:
    return await PgvectorIndex.open(url, encoder="words", dimensions=2)


@pytest.fixture
async def index(database_url: str) -> AsyncIterator[PgvectorIndex]:
    opened = await open_index(database_url)
    yield opened
    await opened.close()


@pytest.mark.parametrize("query", ["application_name=x", "sslmode=prefer", "sslmode=disable&target_session_attrs=any"])
async def test_options_of_the_address_reach_the_driver(database_url: str, query: str) -> None:
    opened = await open_index(f"{database_url}?{query}")
    assert await opened.list_collections(limit=1) == []
    await opened.close()


async def test_of_several_hosts_one_that_answers_is_taken(database_url: str) -> None:
    parts = urlsplit(database_url)
    login, _, host = parts.netloc.rpartition("@")
    opened = await open_index(urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:1,{host}")))
    assert await opened.list_collections(limit=1) == []
    await opened.close()


@pytest.mark.parametrize(
    ("query", "cause"),
    [("sslmode=hunter2", "ClientConfigurationError"), ("no_such_option=hunter2", "UndefinedObjectError")],
)
async def test_an_option_that_nobody_knows_is_told_in_one_line(database_url: str, query: str, cause: str) -> None:
    with pytest.raises(IndexUnusable, match=cause) as caught:
        await open_index(f"{database_url}?{query}")
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)


async def test_a_port_that_none_can_have_is_told_in_one_line() -> None:
    with pytest.raises(IndexUnusable):
        await open_index("postgresql://nobody@127.0.0.1:99999/none")


async def test_what_a_view_has_read_stands_where_its_end_fails(
    index: PgvectorIndex, database_url: str, postgres_url: str
) -> None:
    await index.replace_document(_document(), collection="c")
    async with index.view("c") as view:
        found = await view.search_vectors([1.0, 0.0], limit=5)
        connection = await asyncpg.connect(postgres_url)
        name = urlsplit(database_url).path.removeprefix("/")
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        await connection.close()
    assert [hit.chunk.filename for hit in found] == ["a.md"]
    async with index.view("c") as view:
        assert len(await view.search_vectors([1.0, 0.0], limit=5)) == 1


def _document() -> PreparedDocument:
    chunks = chunk_document([Block("The pump is blue. " * 20)])
    leaves = [chunk for chunk in chunks if chunk.level == LEAF_LEVEL]
    return PreparedDocument(
        filename="a.md",
        size_bytes=1,
        page_count=0,
        sha256="0" * 64,
        recipe="1",
        chunks=chunks,
        vectors=np.array([[1.0, 0.0]] * len(leaves), dtype=np.float32),
    )
