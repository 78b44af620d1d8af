"""Documents are read in processes of their own, within limits, whatever they hold."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from services.agent.errors import DocumentUnreadable
from services.agent.knowledge.loading.processes import DocumentReader, ReadingLimits
from tests.unit.knowledge.made_files import PdfFile, docx

MIB = 1024 * 1024
# Nobody nests so deep, and a parser that follows the standard takes minutes for it.
SLOW = b"<div>" * 150_000 + b"secret"


@asynccontextmanager
async def opened(*, at_once: int = 2, **limits: Any) -> AsyncIterator[DocumentReader]:
    reader = DocumentReader(at_once=at_once, limits=ReadingLimits(**limits))
    try:
        yield reader
    finally:
        reader.close()


@pytest.fixture
async def reader() -> AsyncIterator[DocumentReader]:
    async with opened() as reader:
        yield reader


_of_others = set[int]()


@pytest.fixture(autouse=True)
def without_those_of_others() -> None:
    """What other tests' readers keep warm is none of ours."""
    _of_others.clear()
    _of_others.update(processes())


def processes() -> set[int]:
    """The reading processes that this test's readers have."""
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "services.agent.knowledge.loading.worker" in child.cmdline():
                found.add(child.pid)
    return found - _of_others


async def until(holds: Callable[[], bool], *, within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - another process tells no event
            await asyncio.sleep(0.01)


def kept_busy(pid: int) -> bool:
    """Whether it has begun to work on the document, and not only to start."""
    return sum(psutil.Process(pid).cpu_times()[:2]) > 1


async def refused(reading: Awaitable[object]) -> DocumentUnreadable:
    with pytest.raises(DocumentUnreadable) as caught:
        await reading
    return caught.value


def _calling_itself() -> bytes:
    """A page that shows a form which shows itself, twice each time."""
    form = "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 8 0 R >> >>"
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 7 0 R"
    return PdfFile(
        [["a"]],
        replaced={
            6: f"{page} /Resources << /XObject << /X 8 0 R >> >> >>",
            7: "<< /Length 5 >>\nstream\n/X Do\nendstream",
            8: f"{form} /Length 11 >>\nstream\n/X Do /X Do\nendstream",
        },
    ).content()


HOSTILE = {
    "bomb.docx": docx(f"<w:p><w:r><w:t>{'0' * (200 * MIB)}</w:t></w:r></w:p>"),
    "empty-bomb.docx": docx("<w:p/>" * (40 * MIB)),
    "part-bomb.docx": docx("", parts={"_rels/.rels": b"<a>" + bytes(600 * MIB)}),
    "entities.docx": docx("&b;", declaration='<!DOCTYPE d [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'),
    "nested.docx": docx("<w:sdt>" * 10_000 + "</w:sdt>" * 10_000),
    "nested.html": b"<div>" * 10_000 + b"x",
    "elements.html": b"<b>x</b>" * (2 * MIB),
    "calls-itself.pdf": _calling_itself(),
    "pages.pdf": PdfFile([["a"]], replaced={2: "<< /Type /Pages /Count 9 /Kids [2 0 R 2 0 R] >>"}).content(),
    "lie.pdf": b"PK\x03\x04" + bytes(4000),
    "lie.docx": PdfFile([["a"]]).content(),
    "lie.html": PdfFile([["a"]]).content(),
    "lie.txt": docx("<w:p/>"),
}


@pytest.mark.parametrize("filename", HOSTILE)
async def test_a_hostile_document_is_refused_within_its_limits_and_the_next_is_read(
    reader: DocumentReader, filename: str
) -> None:
    began = time.monotonic()
    error = await refused(reader.read(filename, HOSTILE[filename]))
    assert time.monotonic() - began < 22
    assert error.metadata == {"filename": filename}
    assert [block.text for block in (await reader.read("a.md", b"text")).blocks] == ["text"]


@pytest.mark.parametrize("text", [b"x" * 10 * MIB, "很长的一行。".encode() * (MIB // 2), b"a b. " * 2 * MIB])
async def test_a_line_of_many_mebibytes_is_read(reader: DocumentReader, text: bytes) -> None:
    loaded = await reader.read("a.txt", text)
    assert sum(len(block.text.encode()) for block in loaded.blocks) >= len(text) - 1


async def test_a_document_of_a_thousand_pages_keeps_every_page_number(reader: DocumentReader) -> None:
    content = PdfFile([[f"This is page {number}."] * 40 for number in range(1, 1001)]).content()
    loaded = await reader.read("a.pdf", content)
    assert loaded.page_count == 1000
    assert [block.page_number for block in loaded.blocks] == [str(number) for number in range(1, 1001)]
    [pid] = processes()
    assert psutil.Process(pid).memory_info().rss < 200 * MIB


async def test_a_document_that_takes_too_long_is_ended_with_its_process() -> None:
    async with opened(seconds=1) as reader:
        error = await refused(reader.read("a.html", SLOW))
        assert "more than 1 s" in str(error)
        assert processes() == set()


async def test_a_document_that_takes_too_much_memory_is_refused() -> None:
    async with opened(memory_bytes=120 * MIB) as reader:
        error = await refused(reader.read("a.html", b"<p>text</p>" * MIB))
        assert "120 MiB of memory" in str(error)


async def test_a_document_that_holds_too_much_text_is_refused() -> None:
    async with opened(text_bytes=MIB) as reader:
        error = await refused(reader.read("a.txt", b"text and more\n\n" * 100_000))
        assert "1 MiB" in str(error)


async def test_a_process_is_kept_for_the_next_document_until_it_has_read_its_share() -> None:
    async with opened(documents=2) as reader:
        await reader.read("a.md", b"text")
        first = processes()
        await reader.read("a.html", b"text")
        assert len(first) == 1 and processes() == set()


async def test_a_process_that_a_document_made_fail_is_never_used_again(reader: DocumentReader) -> None:
    await reader.read("a.md", b"text")
    first = processes()
    await refused(reader.read("a.pdf", b"no PDF"))
    await reader.read("a.md", b"text")
    assert len(first) == 1 and not first & processes()


async def test_no_more_processes_run_than_documents_may_be_read_at_once(reader: DocumentReader) -> None:
    reads = [asyncio.create_task(reader.read("a.md", b"text")) for _ in range(10)]
    most = 0
    while not all(read.done() for read in reads):
        most = max(most, len(processes()))
        await asyncio.sleep(0)
    await asyncio.gather(*reads)
    assert most <= 2 and len(processes()) == 2


async def test_a_cancelled_call_ends_its_process(reader: DocumentReader) -> None:
    reading = asyncio.create_task(reader.read("a.html", SLOW))
    await until(lambda: any(map(kept_busy, processes())))
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert processes() == set()
    assert (await reader.read("a.md", b"text")).blocks


async def test_a_call_that_is_cancelled_at_once_leaves_no_process(reader: DocumentReader) -> None:
    for _ in range(5):
        reading = asyncio.create_task(reader.read("a.html", SLOW))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert processes() == set()


async def test_a_process_that_dies_makes_its_document_unreadable_and_no_other(reader: DocumentReader) -> None:
    reading = asyncio.create_task(reader.read("a.html", SLOW))
    await until(lambda: any(map(kept_busy, processes())))
    for pid in processes():
        psutil.Process(pid).kill()
    error = await refused(reading)
    assert "its reader fails" in str(error)
    assert (await reader.read("a.md", b"text")).blocks


async def test_a_process_that_died_idle_is_replaced(reader: DocumentReader) -> None:
    await reader.read("a.md", b"text")
    [pid] = processes()
    psutil.Process(pid).kill()
    await until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert (await reader.read("a.md", b"text")).blocks


async def test_closing_ends_every_process() -> None:
    async with opened() as reader:
        await reader.read("a.md", b"text")
        reading = asyncio.create_task(reader.read("a.html", SLOW))
        await until(lambda: any(map(kept_busy, processes())))
    await refused(reading)
    assert processes() == set()


async def test_a_process_knows_nothing_of_the_services_environment(
    reader: DocumentReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKBACK_DATABASE_URL", "postgresql://u:hunter2@db/x")
    await reader.read("a.md", b"text")
    [pid] = processes()
    environment = psutil.Process(pid).environ()
    assert "hunter2" not in str(environment) and not any(name.startswith("ASKBACK") for name in environment)
    assert environment.get("HOME") is None or os.environ.get("HOME") is None


async def test_nothing_of_a_document_is_logged() -> None:
    async with opened(memory_bytes=120 * MIB) as reader:
        with capture_logs() as logged:
            await refused(reader.read("hunter2.html", b"<p>hunter2</p>" * MIB))
            await refused(reader.read("hunter2.pdf", b"%PDF-1.7 hunter2"))
    assert [entry["event"] for entry in logged] == ["knowledge.reading_failed"]
    assert "hunter2" not in str(logged)
