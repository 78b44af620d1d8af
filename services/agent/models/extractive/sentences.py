"""Reads the text of a chunk as sentences under headings, in Markdown as well as in plain text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from services.agent.models.extractive.terms import fold, stems_of

_MARKDOWN_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
_LIST_ITEM = re.compile(r"^(?:[-*+•·]|\(?\d{1,2}[.)、])\s+(.+)$")
_TABLE_ROW = re.compile(r"^\|(.+)\|$")
_TABLE_RULE = frozenset("|:- \t")
_MARKS = re.compile(r"\*\*|__|`|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)")
_LINK = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()\s]{0,600}\)")
# After Chinese marks and their closing quotes; after English ones where a space and a new sentence follow.
_END = re.compile(
    r"(?<=[。！？])(?![。！？”’」』）)\]])|(?<=[。！？][”’」』）])|(?<=[.!?][\"”’)\]])\s+|(?<=[.!?])\s+(?=[^\s\da-z])"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|approx|no|fig|art|sec|dr|mr|mrs|ms|st|inc|ltd|[a-z])\.$", re.IGNORECASE
)
_TERMINAL = tuple(".!?。！？;；:：,，、")
_PATH_SEPARATOR = " › "
_MAX_HEADING = 80
_MAX_PATH = 600
_MAX_SENTENCE = 1_200


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, list item or table row; `text` is without marks of layout, `folded` and `words` for comparing.

    `headings` are those above it within its chunk, outermost first. `paragraph` numbers the paragraphs of the
    chunk; `is_item` marks list items, `is_row` table rows. `columns` are those of a row that tells something else
    of each of them, in a table whose first column has no name.
    """

    text: str
    headings: tuple[str, ...]
    paragraph: int
    folded: str
    words: frozenset[str]
    is_item: bool = False
    is_row: bool = False
    columns: tuple[str, ...] = ()


@lru_cache(maxsize=512)
def sentences_of(text: str) -> tuple[Sentence, ...]:
    """The sentences of a chunk in order; headings are none themselves."""
    found: list[Sentence] = []
    headings: list[tuple[int, str]] = []
    paragraph = 0
    pending: list[str] = []
    columns: list[str] = []
    lines = [line.strip() for line in text.splitlines()]

    def add(readable: str, *, is_item: bool = False, is_row: bool = False, compared: Sequence[str] = ()) -> None:
        nonlocal paragraph
        paragraph += 1
        path = tuple(heading for _, heading in headings)
        for part in [readable] if is_row else split_sentences(readable):
            if any(character.isalnum() for character in part):
                folded = fold(part)
                found.append(
                    Sentence(part, path, paragraph, folded, stems_of(folded), is_item, is_row, tuple(compared))
                )

    def flush() -> None:
        if pending:
            add(_joined(pending))
            pending.clear()

    for number, line in enumerate(lines):
        if not line.startswith("|"):
            columns = []
        if not line:
            flush()
        elif not found and not headings and not pending and (outline := _outline(lines, number)):
            headings.extend(enumerate(outline, start=1))
        elif heading := _heading(lines, number, is_paragraph_open=bool(pending)):
            flush()
            level, title = heading
            while headings and headings[-1][0] >= level:
                headings.pop()
            headings.append((level, title))
        elif row := _TABLE_ROW.match(line):
            flush()
            following = lines[number + 1] if number + 1 < len(lines) else ""
            if _is_rule(following):
                columns = _cells(row.group(1))
            elif not _is_rule(line):
                cells = _cells(row.group(1))
                add(_row(cells, columns), is_row=True, compared=_compared(cells, columns))
        elif item := _LIST_ITEM.match(line):
            flush()
            add(plain_text(item.group(1)), is_item=True)
        else:
            pending.append(plain_text(line))
    flush()
    return tuple(found)


def plain_text(text: str) -> str:
    """The text without Markdown's marks for emphasis, code and links."""
    return _MARKS.sub("", _LINK.sub(r"\1", text)).strip()


def split_sentences(text: str) -> list[str]:
    """Cuts at the ends of sentences, Chinese and English; an abbreviation or a number ends none."""
    parts: list[str] = []
    for piece in _END.split(text):
        if not piece or not (piece := piece.strip()):
            continue
        if parts and (_ABBREVIATION.search(parts[-1]) or not any(character.isalnum() for character in piece)):
            parts[-1] = f"{parts[-1]} {piece}"
        else:
            parts.append(piece)
    return [part for part in parts if len(part) <= _MAX_SENTENCE]


def _outline(lines: list[str], number: int) -> list[str]:
    """The headings that a chunk stands under, where its first line gives them ("Title › Section")."""
    line = lines[number]
    following = lines[number + 1] if number + 1 < len(lines) else ""
    if _PATH_SEPARATOR not in line or following or len(line) > _MAX_PATH:
        return []
    return [plain_text(part) for part in line.split(_PATH_SEPARATOR) if part.strip()]


def _heading(lines: list[str], number: int, *, is_paragraph_open: bool) -> tuple[int, str] | None:
    """A Markdown heading, or in plain text a short line that stands alone and ends as no sentence does."""
    line = lines[number]
    if marked := _MARKDOWN_HEADING.match(line):
        return len(marked.group(1)), plain_text(marked.group(2))
    following = lines[number + 1] if number + 1 < len(lines) else ""
    if is_paragraph_open or following or len(line) > _MAX_HEADING or line.endswith(_TERMINAL):
        return None
    if line.startswith("|") or _LIST_ITEM.match(line):
        return None
    is_title = number == 0 or not any(lines[:number])
    return (1 if is_title else 2), plain_text(line)


def _joined(lines: list[str]) -> str:
    joined = lines[0]
    for line in lines[1:]:
        # Chinese is written without spaces, so a line break within it is none either.
        joined += line if ord(joined[-1:] or " ") > 0x2E7F and ord(line[:1] or " ") > 0x2E7F else f" {line}"
    return joined


def _is_rule(line: str) -> bool:
    """The line between a table's head and its rows."""
    return "-" in line and _TABLE_RULE.issuperset(line)


def _cells(row: str) -> list[str]:
    return [plain_text(cell) for cell in row.split("|")]


def _compared(cells: list[str], columns: list[str]) -> list[str]:
    """The columns that the row tells different things of."""
    if len(columns) != len(cells) or columns[0] or len(set(cells[1:])) < 2:
        return []
    return [column for column, cell in zip(columns[1:], cells[1:], strict=True) if column and cell]


def _row(cells: list[str], columns: list[str]) -> str:
    """The row as one line, each cell with its column's name where the table has a head."""
    if len(columns) != len(cells):
        first, *others = cells
        rest = ", ".join(cell for cell in others if cell)
        return f"{first}: {rest}" if first and rest else first or rest
    named = [f"{column}: {cell}" if column else cell for column, cell in zip(columns, cells, strict=True) if cell]
    # A first column without a name holds the names of the rows.
    return f"{named[0]} — {'; '.join(named[1:])}" if not columns[0] and len(named) > 1 else "; ".join(named)
