"""What every kind of document is read into, and the one error that a reader raises."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_HEADING_CHARACTERS: Final = 200
"""A line that is longer is text, whatever it looks like."""

MAX_DEPTH: Final = 2_000
"""How deep the elements of a document may be nested; what people write stays far below it."""

_MAX_HEADINGS: Final = 20_000
"""Further headings are read as text: a document of headings alone must not cost a hundred times its size."""

_MAX_LEVEL: Final = 12
_BLOCK_CHARACTERS: Final = 64 * 1024
"""A longer run of text ends at its next blank line, so that a document is passed on piece by piece."""

_MAX_BLOCK_CHARACTERS: Final = 1024 * 1024
"""One that has no blank line ends at the end of a line."""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of text, or a heading where `heading_level` is 1 or more; `page_number` as the document numbers it."""

    text: str
    heading_level: int = 0
    page_number: str = ""


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """A document's blocks in reading order; `page_count` is 0 for formats without pages."""

    blocks: list[Block] = field(default_factory=list)
    page_count: int = 0


@dataclass(frozen=True, slots=True)
class OpenedDocument:
    """A document that is read as its blocks are asked for, once; asking for them raises Unreadable too."""

    blocks: Iterable[Block]
    page_count: int = 0


class Unreadable(Exception):
    """The bytes are not what their name says, or hold nothing to read; the text says why, and quotes nothing."""


class BlockWriter:
    """Gathers lines into blocks, a new one at each heading."""

    def __init__(self) -> None:
        self._done: list[Block] = []
        self._lines: list[str] = []
        self._characters = 0
        self._headings = 0
        self._open: list[tuple[int, str]] = []
        self._closed_level = 0

    @property
    def level(self) -> int:
        """The level of the heading that text now stands under, 0 where there is none."""
        return self._open[-1][0] if self._open else 0

    @property
    def has_finished(self) -> bool:
        """Whether there are blocks to take."""
        return bool(self._done)

    def line(self, line: str) -> None:
        if self._closed_level and line.strip():
            self._tell_again()
        self._lines.append(line)
        self._characters += len(line)
        if self._characters > _BLOCK_CHARACTERS and (self._characters > _MAX_BLOCK_CHARACTERS or not line.strip()):
            self._flush()

    def heading(self, text: str, level: int) -> None:
        """Opens a section; a title past MAX_HEADING_CHARACTERS is cut, and also stands whole as its first line."""
        title = text if len(text) <= MAX_HEADING_CHARACTERS else text[: MAX_HEADING_CHARACTERS - 1] + "…"
        level = min(level, _MAX_LEVEL)
        if self._closed_level and level > self._closed_level:
            self._tell_again()
        if not self._write_heading(title, level):
            self.line(text)
        elif title != text:
            self.line(text)
            self.line("")

    def close(self, level: int) -> None:
        """Ends the sections of this level and deeper ones: what follows belongs to the one above them.

        Its heading is told again where text does follow: only a heading can end a section.
        """
        while self._open and self._open[-1][0] >= level:
            closed, _ = self._open.pop()
            self._closed_level = min(closed, self._closed_level or closed)

    def take(self) -> list[Block]:
        """The blocks that are finished by now, each once."""
        done, self._done = self._done, []
        return done

    def finish(self) -> list[Block]:
        self._flush()
        return self.take()

    def _tell_again(self) -> None:
        self._closed_level = 0
        if self._open:
            level, title = self._open[-1]
            self._write_heading(title, level)

    def _write_heading(self, title: str, level: int) -> bool:
        self._headings += 1
        if self._headings > _MAX_HEADINGS:
            return False
        self._flush()
        self._done.append(Block(title, heading_level=level))
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        self._open.append((level, title))
        self._closed_level = 0
        return True

    def _flush(self) -> None:
        text = "\n".join(self._lines).strip("\n")
        if text.strip():
            self._done.append(Block(text))
        self._lines.clear()
        self._characters = 0
