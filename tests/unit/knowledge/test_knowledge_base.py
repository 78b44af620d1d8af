"""Documents through the front door, over a real index."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from services.agent.errors import (
    CollectionNotFound,
    DocumentNotFound,
    DocumentUnreadable,
    EncoderMismatch,
    KnowledgeUnavailable,
)
from services.agent.knowledge.ingest import MAX_DOCUMENT_BYTES
from services.agent.knowledge.knowledge_base import KnowledgeBase, open_knowledge
from services.runtime.errors import TooLarge

MANUAL = "# Alder manual\n\n## Battery\n\nThe battery lasts 3 years.\n\n## 保修\n\n保修期为两年。\n".encode()


@pytest.fixture
async def knowledge(database_url: str, encoder: Any) -> AsyncIterator[KnowledgeBase]:
    async with open_knowledge(database_url, encoder=encoder) as opened:
        yield opened


async def _found(knowledge: KnowledgeBase, query: str) -> list[str]:
    return [chunk.text for chunk in (await knowledge.search.retrieve(query, collection="default")).chunks]


async def test_a_document_is_found_once_it_is_ingested(knowledge: KnowledgeBase) -> None:
    record, unchanged = await knowledge.ingest("alder.md", MANUAL)
    assert not unchanged
    assert (record.collection, record.filename, record.size_bytes) == ("default", "alder.md", len(MANUAL))
    (text,) = await _found(knowledge, "battery")
    assert text.startswith("Alder manual\n\n## Battery\n\nThe battery lasts 3 years.")
    assert await _found(knowledge, "保修期") == [text]


async def test_the_same_bytes_again_do_nothing(knowledge: KnowledgeBase, encoder: Any) -> None:
    record, _ = await knowledge.ingest("alder.md", MANUAL)
    calls = encoder.calls
    assert await knowledge.ingest("alder.md", MANUAL) == (record, True)
    assert encoder.calls == calls


async def test_other_bytes_replace_the_document(knowledge: KnowledgeBase) -> None:
    first, _ = await knowledge.ingest("alder.md", MANUAL)
    second, unchanged = await knowledge.ingest("alder.md", b"# Alder\n\nThe battery lasts 5 years.")
    assert not unchanged
    assert second.sha256 != first.sha256
    assert await _found(knowledge, "battery") == ["Alder\n\nThe battery lasts 5 years."]
    assert [document.sha256 for document in await knowledge.list_documents(limit=5)] == [second.sha256]


async def test_the_same_document_many_times_at_once_is_stored_once(knowledge: KnowledgeBase) -> None:
    results = await asyncio.gather(*(knowledge.ingest("alder.md", MANUAL) for _ in range(8)))
    assert sum(not unchanged for _, unchanged in results) == 1
    assert len({record.ingest_time for record, _ in results}) == 1


async def test_versions_at_once_are_taken_in_the_order_of_their_calls(knowledge: KnowledgeBase) -> None:
    await asyncio.gather(*(knowledge.ingest("a.md", f"Version {number} is here.".encode()) for number in range(6)))
    assert await _found(knowledge, "version") == ["Version 5 is here."]


@pytest.mark.parametrize("content", [b"", b"a\0b", b"\xff\x00\x9f"])
async def test_an_unreadable_document_leaves_the_older_one(knowledge: KnowledgeBase, content: bytes) -> None:
    record, _ = await knowledge.ingest("alder.md", MANUAL)
    with pytest.raises(DocumentUnreadable):
        await knowledge.ingest("alder.md", content)
    assert await knowledge.list_documents(limit=5) == [record]


async def test_an_encoder_that_fails_leaves_the_older_document(knowledge: KnowledgeBase, encoder: Any) -> None:
    record, _ = await knowledge.ingest("alder.md", MANUAL)
    encoder.broken = True
    with pytest.raises(ConnectionError):
        await knowledge.ingest("alder.md", b"New text.")
    assert await knowledge.list_documents(limit=5) == [record]


async def test_a_collection_is_there_where_it_has_documents_or_cannot_be_looked_at(
    make_database: Callable[[], Awaitable[str]], postgres_url: str, encoder: Any
) -> None:
    url = await make_database()
    async with open_knowledge(url, encoder=encoder) as knowledge:
        await knowledge.ingest("alder.md", MANUAL, collection="manuals")
        await knowledge.require_collection("manuals")
        with pytest.raises(CollectionNotFound):
            await knowledge.require_collection("none")
        await _cut_off(postgres_url, url)
        await knowledge.require_collection("none")


async def test_a_document_over_the_limit_is_refused(knowledge: KnowledgeBase) -> None:
    with pytest.raises(TooLarge) as caught:
        await knowledge.ingest("a.md", bytes(MAX_DOCUMENT_BYTES + 1))
    assert caught.value.metadata == {"limit": str(MAX_DOCUMENT_BYTES), "actual": str(MAX_DOCUMENT_BYTES + 1)}


async def test_the_default_collection_is_there_before_its_documents(knowledge: KnowledgeBase) -> None:
    assert await knowledge.list_documents(limit=5) == []
    with pytest.raises(DocumentNotFound):
        await knowledge.delete_document("a.md")
    with pytest.raises(CollectionNotFound):
        await knowledge.list_documents(collection="other", limit=5)
    with pytest.raises(CollectionNotFound):
        await knowledge.delete_document("a.md", collection="other")


async def test_a_deleted_document_is_found_no_more(knowledge: KnowledgeBase) -> None:
    record, _ = await knowledge.ingest("alder.md", MANUAL)
    assert await knowledge.delete_document("alder.md") == record.chunk_count
    assert await _found(knowledge, "battery") == []


async def test_another_encoder_is_refused_before_it_is_asked(
    knowledge: KnowledgeBase, database_url: str, encoder: Any
) -> None:
    await knowledge.ingest("alder.md", MANUAL)
    other = type(encoder)()
    other.name = "others"
    async with open_knowledge(database_url, encoder=other) as opened:
        with pytest.raises(EncoderMismatch):
            await opened.ingest("b.md", MANUAL)
        assert other.calls == 0
        with pytest.raises(EncoderMismatch):
            await opened.search.retrieve("battery", collection="default")


async def test_a_lost_database_fails_the_search_by_name_and_comes_back(
    make_database: Callable[[], Awaitable[str]], postgres_url: str, encoder: Any
) -> None:
    url = await make_database()
    name = url.rpartition("/")[2]
    async with open_knowledge(url, encoder=encoder) as knowledge:
        await knowledge.ingest("alder.md", MANUAL)
        await _cut_off(postgres_url, url)
        assert not await knowledge.is_ready()
        found = await knowledge.search.retrieve("battery", collection="default")
        assert (found.chunks, found.stats.mode) == ([], "failed")
        assert found.stats.error == "index failed: KNOWLEDGE_UNAVAILABLE"
        with pytest.raises(KnowledgeUnavailable):
            await knowledge.list_documents(limit=5)
        await _admin(postgres_url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert len(await _found(knowledge, "battery")) == 1
        assert await knowledge.is_ready()


async def test_a_search_that_gets_no_answer_is_given_up_in_seconds(knowledge: KnowledgeBase, database_url: str) -> None:
    await knowledge.ingest("alder.md", MANUAL)
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE askback_knowledge.collections IN ACCESS EXCLUSIVE MODE")
            async with asyncio.timeout(8):
                found = await knowledge.search.retrieve("battery", collection="default")
            assert (found.chunks, found.stats.mode) == ([], "failed")
    finally:
        await connection.close()
    assert len(await _found(knowledge, "battery")) == 1


async def test_a_small_document_does_not_wait_behind_large_ones(knowledge: KnowledgeBase, encoder: Any) -> None:
    encoder.held = asyncio.Event()
    large = b"The battery lasts 3 years. " * 12_000
    waiting = [asyncio.create_task(knowledge.ingest(f"large-{number}.md", large)) for number in range(3)]
    try:
        await encoder.holding.wait()
        record, _ = await knowledge.ingest("alder.md", MANUAL)
        assert await knowledge.list_documents(limit=5) == [record]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_an_index_that_cannot_be_reached_is_told_at_once(unused_port: int, encoder: Any) -> None:
    with pytest.raises(KnowledgeUnavailable):
        async with open_knowledge(f"postgresql://askback@127.0.0.1:{unused_port}/none", encoder=encoder):
            pass


async def test_the_loop_stays_free_while_a_large_document_is_read(knowledge: KnowledgeBase) -> None:
    hostile = b"# a\n" * 400_000 + b"word " * 400_000
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(knowledge.ingest("a.md", hostile))
    stalls = []
    for _ in range(200):
        before = loop.time()
        await asyncio.sleep(0.001)
        stalls.append(loop.time() - before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert max(stalls) < 1
    assert await knowledge.list_documents(limit=5) == []


async def _cut_off(postgres_url: str, url: str) -> None:
    """Ends all connections to the database, and lets none come."""
    name = url.rpartition("/")[2]
    await _admin(postgres_url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await _admin(postgres_url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


async def _admin(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def unused_port() -> int:
    """A port of the loopback that nothing listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
