"""Which evidence a text cites."""

import re
from collections.abc import Iterable, Sequence

from askback.cli.printable import printable
from askback.rag.v1 import trace_pb2

CITATION = re.compile(r"\[(\d{1,3}(?:\s*[,，、]\s*\d{1,3})*)\]")


def cited(text: str, chunks: Sequence[trace_pb2.RetrievedChunk]) -> list[tuple[int, trace_pb2.RetrievedChunk]]:
    """The evidence that the text cites by its place ([1] is the first), each once, in order of number."""
    numbers = {int(number) for match in CITATION.finditer(text) for number in re.findall(r"\d+", match[1])}
    return [(number, chunks[number - 1]) for number in sorted(numbers) if 1 <= number <= len(chunks)]


def source(chunk: trace_pb2.RetrievedChunk) -> str:
    """Where a piece of evidence is from: `file · p. 12`, or the file alone where it has no pages."""
    name = printable(chunk.filename)
    return f"{name} · p. {printable(chunk.page_number)}" if chunk.page_number else name


def citation_lines(text: str, chunks: Sequence[trace_pb2.RetrievedChunk]) -> Iterable[str]:
    for number, chunk in cited(text, chunks):
        yield f"[{number}] {source(chunk)}"
