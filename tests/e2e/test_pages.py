"""A turn's trace tells the pages of what was found."""

from tests.e2e.harness import System, chat, trace_of
from tests.unit.knowledge.made_files import PdfFile

PASSAGE = "The membrane of the Willow pump is replaced every fourteen months."


async def test_a_trace_tells_the_page_of_each_passage(system: System, user: str) -> None:
    other = ["The frame is made of steel, and a dry cloth is all that it needs."] * 4
    pages = [["Willow pump"], other, [PASSAGE, "The old one goes into the household waste."] * 2]
    content = PdfFile(pages, labels="0 << /S /r >> 1 << /S /D >>").content()
    await system.knowledge.ingest_document(filename="willow.pdf", content=content, collection="pages")
    question = "How often is the membrane of the Willow pump replaced?"
    events = await chat(system.agent, user_id=user, session_id="s", message=question, collection="pages")
    told = [chunk for chunk in trace_of(events).initial_retrieved_chunks if PASSAGE in chunk.text]
    assert [(chunk.filename, chunk.page_number) for chunk in told] == [("willow.pdf", "2")]
    await system.knowledge.delete_document(filename="willow.pdf", collection="pages")
