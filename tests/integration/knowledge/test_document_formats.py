"""Documents of every kind through the real service: found with their pages, kept where a newer one is broken."""

import io
from collections.abc import AsyncIterator, Sequence

import docx as python_docx
import pytest
from pydantic import SecretStr

from askback.client import KnowledgeClient
from askback.client.errors import DocumentUnreadable
from askback.rag.v1 import trace_pb2
from services.agent.server import agent_server
from services.agent.settings import AgentSettings
from tests.unit.knowledge.made_files import PdfFile, encrypted_pdf

ENGLISH = "The membrane of the Willow pump is replaced every fourteen months."
CHINESE = "柳树水泵的隔膜每十四个月更换一次。"


def _pdf() -> bytes:
    """Its passages stand in the middle of pages as full as printed ones are."""
    english = [f"Part {number} of the frame is made of steel and needs no care at all." for number in range(40)]
    chinese = [f"外壳的第{number}个零件由钢制成，不需要任何保养。" for number in range(40)]
    pages = [["Willow pump"], english, [*english[:20], ENGLISH, *english[20:]], chinese]
    return PdfFile([*pages, [*chinese[:20], CHINESE, *chinese[20:]]], labels="0 << /S /r >> 1 << /S /D >>").content()


def _docx() -> bytes:
    document = python_docx.Document()
    document.add_heading("Willow pump", 0)
    for text in (ENGLISH, CHINESE):
        document.add_heading(text[:8], 1)
        document.add_paragraph(text)
    saved = io.BytesIO()
    document.save(saved)
    return saved.getvalue()


DOCUMENTS = {
    "willow.pdf": _pdf(),
    "willow.docx": _docx(),
    "willow.html": f"<title>Willow pump</title><p>{ENGLISH}<p>{CHINESE}<script>bad()</script>".encode(),
    "willow.htm": f"<meta charset=gbk><p>{ENGLISH}<p>{CHINESE}".encode("gbk"),
    "willow.md": f"# Willow pump\n\n{ENGLISH}\n\n{CHINESE}\n".encode(),
    "willow.txt": f"{ENGLISH}\n\n{CHINESE}\n".encode("utf-16-le"),
}
QUESTIONS = {"How often is the membrane of the Willow pump replaced?": ENGLISH, "柳树水泵的隔膜多久更换一次？": CHINESE}


@pytest.fixture
async def knowledge(database_url: str) -> AsyncIterator[KnowledgeClient]:
    settings = AgentSettings.of(
        agent_address="127.0.0.1:0",
        # No turn is asked for, so nobody need be there.
        storage_address="127.0.0.1:1",
        knowledge_url=SecretStr(database_url),
        drain_s=1.0,
    )
    async with agent_server(settings) as agent, KnowledgeClient(agent.address) as client:
        yield client


async def found(knowledge: KnowledgeClient, query: str) -> Sequence[trace_pb2.RetrievedChunk]:
    return (await knowledge.search_knowledge(query=query)).chunks


@pytest.mark.parametrize("filename", DOCUMENTS)
async def test_a_document_is_found_in_both_languages_and_its_bytes_are_read_once(
    knowledge: KnowledgeClient, filename: str
) -> None:
    first = await knowledge.ingest_document(filename=filename, content=DOCUMENTS[filename])
    assert not first.unchanged
    for question, passage in QUESTIONS.items():
        assert any(passage in chunk.text and chunk.filename == filename for chunk in await found(knowledge, question))
    again = await knowledge.ingest_document(filename=filename, content=DOCUMENTS[filename])
    assert again.unchanged and again.document == first.document


async def test_what_is_found_in_a_pdf_tells_its_page_as_the_document_numbers_it(knowledge: KnowledgeClient) -> None:
    reply = await knowledge.ingest_document(filename="willow.pdf", content=DOCUMENTS["willow.pdf"])
    assert reply.document.page_count == 5
    pages = []
    for question, passage in QUESTIONS.items():
        pages += [chunk.page_number for chunk in await found(knowledge, question) if passage in chunk.text][:1]
    assert pages == ["2", "4"]


async def test_only_documents_with_pages_have_page_numbers(knowledge: KnowledgeClient) -> None:
    reply = await knowledge.ingest_document(filename="willow.docx", content=DOCUMENTS["willow.docx"])
    assert reply.document.page_count == 0
    for question in QUESTIONS:
        chunks = await found(knowledge, question)
        assert chunks and not any(chunk.page_number for chunk in chunks)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no PDF", id="no-pdf"),
        pytest.param(encrypted_pdf(), id="encrypted"),
        pytest.param(PdfFile([[]]).content(), id="scanned"),
        pytest.param(_pdf()[:900], id="cut"),
    ],
)
async def test_an_unreadable_document_leaves_the_older_one_as_it_is(knowledge: KnowledgeClient, broken: bytes) -> None:
    before = await knowledge.ingest_document(filename="willow.pdf", content=DOCUMENTS["willow.pdf"])
    with pytest.raises(DocumentUnreadable):
        await knowledge.ingest_document(filename="willow.pdf", content=broken)
    assert [document async for document in knowledge.documents()] == [before.document]
    for question, passage in QUESTIONS.items():
        assert any(passage in chunk.text for chunk in await found(knowledge, question))
