"""A document's blocks to three levels of chunks, by windows over its sentences.

Leaves (level 3) are searched; a leaf's parent (level 2) and that one's parent (level 1) hold its text in a
wider setting. A window ends at the border of a section or a page where one is near, and otherwise after a
sentence, with an eighth of it repeated in the next.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from services.agent.knowledge.loading import Block
from services.agent.knowledge.sentences import sentence_spans

LEAF_LEVEL: Final = 3
CHUNK_RECIPE: Final = "1"
"""Names how documents are cut; a change of it makes the same bytes a new document to ingest."""

HEADING_SEPARATOR: Final = " › "
_OVERLAP_SHARE: Final = 8
_MAX_HEADING_DEPTH: Final = 6
_WINDOWS: Final = {1: 2400, 2: 1600, 3: 800}


@dataclass(frozen=True, slots=True)
class Chunk:
    """One window of a document; `ordinal` counts within its level, `parent` is an ordinal of the level above.

    `heading_path` is what all of its text stands under; headings further inside are part of `text`.
    """

    level: int
    ordinal: int
    parent: int | None
    heading_path: tuple[str, ...]
    text: str
    page_number: str

    @property
    def passage(self) -> str:
        """The text below its heading path: what is embedded, searched and shown."""
        return passage_of(HEADING_SEPARATOR.join(self.heading_path), self.text)


def passage_of(heading_path: str, text: str) -> str:
    return "\n\n".join(part for part in (heading_path, text) if part)


def chunk_document(blocks: Sequence[Block]) -> list[Chunk]:
    """All chunks, parents before their children. It takes time with the size: keep it off the event loop."""
    return _Chunker(_units_of(blocks)).chunks()


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence, or a heading; `path` is the headings it stands under.

    A heading's own is in its path where it opens a section, which a heading without any text below does not.
    """

    text: str
    path: tuple[str, ...]
    page_number: str
    is_heading: bool = False
    opens_section: bool = False


def _units_of(blocks: Sequence[Block]) -> list[_Unit]:
    units: list[_Unit] = []
    open_headings: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    for number, block in enumerate(blocks):
        if block.heading_level:
            title = " ".join(block.text.split())
            while open_headings and open_headings[-1][0] >= block.heading_level:
                open_headings.pop()
            open_headings.append((block.heading_level, title))
            path = tuple(title for _, title in open_headings)
            opens = _has_text_below(blocks, number)
            rendered = f"{'#' * block.heading_level} {title}\n\n"
            units.append(
                _Unit(
                    rendered,
                    path if opens else path[:-1],
                    block.page_number,
                    is_heading=True,
                    opens_section=opens,
                )
            )
            continue
        text = block.text.strip() + "\n\n"
        units.extend(
            _Unit(text[start:end], path, block.page_number) for start, end in sentence_spans(text, _WINDOWS[LEAF_LEVEL])
        )
    return units


def _has_text_below(blocks: Sequence[Block], number: int) -> bool:
    """Whether the heading's section, with the sections inside it that follow at once, begins with text."""
    level = blocks[number].heading_level
    for block in blocks[number + 1 : number + 1 + _MAX_HEADING_DEPTH]:
        if not block.heading_level:
            return True
        if block.heading_level <= level:
            return False
        level = block.heading_level
    return False


class _Chunker:
    def __init__(self, units: list[_Unit]):
        self._units = units
        self._offsets = [0, *accumulate(len(unit.text) for unit in units)]
        self._borders = [at for at in range(1, len(units)) if _is_border(units[at - 1], units[at])]
        self._chunks: list[Chunk] = []
        self._counts = dict.fromkeys(_WINDOWS, 0)

    def chunks(self) -> list[Chunk]:
        self._descend(0, len(self._units), level=1, parent=None)
        return self._chunks

    def _descend(self, start: int, end: int, *, level: int, parent: int | None) -> None:
        for first, last in self._windows(start, end, level=level):
            ordinal = self._counts[level]
            self._counts[level] += 1
            self._chunks.append(self._chunk(first, last, level=level, ordinal=ordinal, parent=parent))
            if level < LEAF_LEVEL:
                self._descend(first, last, level=level + 1, parent=ordinal)

    def _windows(self, start: int, end: int, *, level: int) -> list[tuple[int, int]]:
        windows: list[tuple[int, int]] = []
        while start < end:
            cut, repeat = self._cut(start, end, level=level)
            windows.append((start, cut))
            start = cut - self._repeated(start, cut, limit=_WINDOWS[level] // _OVERLAP_SHARE) if repeat else cut
        return windows

    def _cut(self, start: int, end: int, *, level: int) -> tuple[int, bool]:
        """Where the window that begins at `start` ends, and whether the next repeats some of it."""
        limit = _WINDOWS[level]
        if level == LEAF_LEVEL:
            # A leaf is about one thing: it takes in a further section only while it is very short.
            end = self._border_after(start, end, least=limit // 8) or end
        if self._length(start, end) <= limit:
            return end, False
        furthest = max(start + 1, bisect_right(self._offsets, self._offsets[start] + limit) - 1)
        border = self._border_before(start, furthest, least=limit // 2 if level < LEAF_LEVEL else 1)
        if border is not None:
            return border, False
        target = self._balanced(self._length(start, end), limit)
        cut = start + 1
        while cut < furthest and self._length(start, cut) < target:
            cut += 1
        # No window ends in a heading that belongs to what follows.
        while cut - 1 > start and self._units[cut - 1].is_heading:
            cut -= 1
        return cut, True

    @staticmethod
    def _balanced(length: int, limit: int) -> int:
        """How long windows are that share `length` evenly, so that no stub is left at the end."""
        overlap = limit // _OVERLAP_SHARE
        count = -(-(length - overlap) // (limit - overlap))
        return min(limit, -(-(length + (count - 1) * overlap) // count))

    def _repeated(self, start: int, cut: int, *, limit: int) -> int:
        """How many units before `cut` the next window repeats, of the same section alone."""
        count = 0
        while cut - count - 1 > start and self._length(cut - count - 1, cut) <= limit:
            if self._units[cut - count - 1].is_heading:
                break
            count += 1
        return count

    def _length(self, start: int, end: int) -> int:
        return self._offsets[end] - self._offsets[start]

    def _border_after(self, start: int, end: int, *, least: int) -> int | None:
        at = bisect_right(self._borders, start)
        while at < len(self._borders) and self._borders[at] < end:
            if self._length(start, self._borders[at]) >= least:
                return self._borders[at]
            at += 1
        return None

    def _border_before(self, start: int, end: int, *, least: int) -> int | None:
        at = bisect_right(self._borders, end) - 1
        if at >= 0 and self._borders[at] > start and self._length(start, self._borders[at]) >= least:
            return self._borders[at]
        return None

    def _chunk(self, first: int, last: int, *, level: int, ordinal: int, parent: int | None) -> Chunk:
        units = self._units[first:last]
        path = _common_path([unit for unit in units if not unit.opens_section] or units)
        # Headings that the path tells already are not told again.
        skipped = 0
        while skipped < len(units) and units[skipped].opens_section:
            if units[skipped].path != path[: len(units[skipped].path)]:
                break
            skipped += 1
        return Chunk(
            level=level,
            ordinal=ordinal,
            parent=parent,
            heading_path=path,
            text="".join(unit.text for unit in units[skipped:]).strip(),
            page_number=_main_page(units),
        )


def _is_border(before: _Unit, unit: _Unit) -> bool:
    """Whether a section begins here, at a heading that follows no other at once; or a page, so that a leaf has one."""
    return (unit.is_heading and not before.is_heading) or unit.page_number != before.page_number


def _main_page(units: Sequence[_Unit]) -> str:
    """The page that most of the text stands on."""
    lengths: dict[str, int] = {}
    for unit in units:
        lengths[unit.page_number] = lengths.get(unit.page_number, 0) + len(unit.text)
    return max(lengths, key=lengths.__getitem__)


def _common_path(units: Sequence[_Unit]) -> tuple[str, ...]:
    path = units[0].path
    for unit in units[1:]:
        if unit.path is path:
            continue
        shared = 0
        while shared < min(len(path), len(unit.path)) and path[shared] == unit.path[shared]:
            shared += 1
        path = path[:shared]
    return path
