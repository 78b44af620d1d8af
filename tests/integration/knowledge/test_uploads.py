"""Documents on their way in: how many at once, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from askback.agent.v1 import knowledge_service_pb2 as pb
from services.agent.knowledge.knowledge_base import KnowledgeBase, open_knowledge
from services.agent.rpc.documents import upload_content
from services.agent.rpc.knowledge_service import KnowledgeServicer
from services.runtime.errors import TimeLimit, TooLarge

AT_ONCE = 8
# What a handler of these calls never looks at.
CONTEXT: Any = None


@pytest.fixture
async def knowledge(database_url: str) -> AsyncIterator[KnowledgeBase]:
    async with open_knowledge(database_url) as opened:
        yield opened


def chunk(content: bytes) -> pb.IngestDocumentRequest:
    return pb.IngestDocumentRequest(chunk=content)


async def test_no_more_documents_are_received_at_once_than_have_room(knowledge: KnowledgeBase) -> None:
    receiving = most = 0
    full = asyncio.Event()

    async def parts(number: int) -> AsyncIterator[pb.IngestDocumentRequest]:
        nonlocal receiving, most
        yield pb.IngestDocumentRequest(header=pb.DocumentHeader(filename=f"{number}.md"))
        receiving += 1
        most = max(most, receiving)
        if receiving == AT_ONCE:
            # Once all that are ready to go on have done so.
            asyncio.get_running_loop().call_soon(full.set)
        await full.wait()
        yield chunk(f"Pump {number} is blue.".encode())
        receiving -= 1

    servicer = KnowledgeServicer(knowledge)
    replies = await asyncio.gather(*(servicer.IngestDocument(parts(number), CONTEXT) for number in range(20)))
    assert {reply.document.filename for reply in replies} == {f"{number}.md" for number in range(20)}
    assert most == AT_ONCE


async def test_an_upload_that_sends_nothing_gives_its_place_back() -> None:
    async def parts() -> AsyncIterator[pb.IngestDocumentRequest]:
        yield chunk(b"a")
        await asyncio.Event().wait()

    with pytest.raises(TimeLimit):
        await upload_content(parts(), part_limit_s=0.01)


async def test_an_upload_is_refused_at_the_part_that_makes_it_too_large() -> None:
    sent = 0

    async def parts() -> AsyncIterator[pb.IngestDocumentRequest]:
        nonlocal sent
        while True:
            sent += 1
            yield chunk(bytes(8 * 1024 * 1024))

    with pytest.raises(TooLarge):
        await upload_content(parts())
    assert sent == 5


async def test_parts_are_joined_in_order() -> None:
    async def parts() -> AsyncIterator[pb.IngestDocumentRequest]:
        for part in (b"one ", b"", b"two"):
            yield chunk(part)

    assert await upload_content(parts()) == b"one two"
