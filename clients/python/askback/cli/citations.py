"""Which evidence a text cites, and where it stands."""

import re
from collections.abc import Iterable, Sequence

from askback.cli.printable import printable
from askback.rag.v1 import trace_pb2

CITATION = re.compile(r"\[(\d{1,3}(?:\s*[,，、]\s*\d{1,3})*)\]")

# A passage begins with the headings that it stands under, and an empty line; one without headings may begin
# with a short paragraph instead, which ends as a sentence does.
_HEADING = re.compile(r"(?:#{1,6} )?([^\n]{1,200}[^\n.。:：;；,，…\s])\s*\n\s*\n")


def cited(text: str, chunks: Sequence[trace_pb2.RetrievedChunk]) -> list[tuple[int, trace_pb2.RetrievedChunk]]:
    """The evidence that the text cites by its place ([1] is the first), each once, in order of number."""
    numbers = {int(number) for match in CITATION.finditer(text) for number in re.findall(r"\d+", match[1])}
    return [(number, chunks[number - 1]) for number in sorted(numbers) if 1 <= number <= len(chunks)]


def source(chunk: trace_pb2.RetrievedChunk) -> str:
    """Where a piece of evidence is from: `file · p. 12 · Plans › Forest`, as far as it has pages and headings."""
    parts = [printable(chunk.filename)]
    if chunk.page_number:
        parts.append(f"p. {printable(chunk.page_number)}")
    if heading := _HEADING.match(chunk.text):
        parts.append(printable(heading[1]))
    return " · ".join(parts)


def below_heading(chunk: trace_pb2.RetrievedChunk) -> str:
    """The evidence's text without what `source` tells already."""
    heading = _HEADING.match(chunk.text)
    return chunk.text[heading.end() :] if heading else chunk.text


def citation_lines(text: str, chunks: Sequence[trace_pb2.RetrievedChunk]) -> Iterable[str]:
    for number, chunk in cited(text, chunks):
        yield f"[{number}] {source(chunk)}"
