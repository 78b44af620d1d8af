"""PDF: the text of each page under its own number, with the outline's entries as headings."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pypdfium2  # type: ignore[import-untyped]
import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

from services.agent.knowledge.loading.blocks import MAX_HEADING_CHARACTERS, Block, OpenedDocument, Unreadable
from services.agent.knowledge.loading.paragraphs import joined_lines

_WHY: Final = {
    pdfium.FPDF_ERR_FORMAT: "it is no PDF, or a broken one",
    pdfium.FPDF_ERR_PASSWORD: "it is encrypted, and opens with a password alone",
    pdfium.FPDF_ERR_SECURITY: "it is encrypted in a way that is not known",
}
_LABEL_CHARACTERS: Final = 16
_MAX_OUTLINE: Final = 20_000
_OUTLINE_DEPTH: Final = 6
# Where a line ends within a word, the parser leaves a mark in place of the hyphen.
_BROKEN_WORD: Final = re.compile("[\ufffe\x02]\\s*")
# A title may stand on up to so many lines of its page.
_TITLE_LINES: Final = 3

Heading = tuple[str, int]


def open_pdf(content: bytes) -> OpenedDocument:
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(_WHY.get(error.err_code, "it is a broken PDF")) from None
    return OpenedDocument(_blocks(document), page_count=len(document))


def _blocks(document: pypdfium2.PdfDocument) -> Iterator[Block]:
    outline = _outline(document)
    holds_text = False
    for index in range(len(document)):
        lines = _page_lines(document, index)
        holds_text = holds_text or bool(lines)
        yield from _page_blocks(lines, outline.get(index, ()), page_number=_page_number(document, index))
    if not holds_text:
        raise Unreadable("none of its pages holds text, as in a scan; it would have to go through text recognition")


def _page_lines(document: pypdfium2.PdfDocument, index: int) -> list[str]:
    try:
        page = document[index]
    except pypdfium2.PdfiumError:
        raise Unreadable(f"its page {index + 1} of {len(document)} is broken") from None
    try:
        text_page = page.get_textpage()
        text: str = text_page.get_text_bounded()
        text_page.close()
    except pypdfium2.PdfiumError:
        raise Unreadable(f"the text of its page {index + 1} of {len(document)} is broken") from None
    finally:
        page.close()
    text = _BROKEN_WORD.sub("", text.replace("\0", ""))
    return [line for line in (" ".join(line.split()) for line in text.splitlines()) if line]


def _page_number(document: pypdfium2.PdfDocument, index: int) -> str:
    """As the document numbers it, where it does."""
    try:
        label: str = document.get_page_label(index).strip()
    except UnicodeDecodeError:
        label = ""
    return label if label and label.isprintable() and len(label) <= _LABEL_CHARACTERS else str(index + 1)


def _outline(document: pypdfium2.PdfDocument) -> Mapping[int, Sequence[Heading]]:
    """The outline's entries by the page that they lead to."""
    found: dict[int, list[Heading]] = defaultdict(list)
    for number, entry in enumerate(document.get_toc(max_depth=_OUTLINE_DEPTH)):
        if number == _MAX_OUTLINE:
            break
        target = entry.get_dest()
        index = target.get_index() if target is not None else None
        try:
            title = " ".join(entry.get_title().replace("\0", "").split())
        except UnicodeDecodeError:
            continue
        if index is not None and title and len(title) <= MAX_HEADING_CHARACTERS:
            found[index].append((title, entry.level + 1))
    return found


def _page_blocks(lines: Sequence[str], headings: Sequence[Heading], *, page_number: str) -> Iterator[Block]:
    """The page's text, parted where its headings stand; one that is not found stands before what is left."""
    start = 0
    for title, level in headings:
        at, after = _find_title(lines, title, start=start)
        yield from _text_block(lines[start:at], page_number=page_number)
        yield Block(title, heading_level=level, page_number=page_number)
        start = after
    yield from _text_block(lines[start:], page_number=page_number)


def _text_block(lines: Sequence[str], *, page_number: str) -> Iterator[Block]:
    if lines:
        yield Block(joined_lines(lines), page_number=page_number)


def _find_title(lines: Sequence[str], title: str, *, start: int) -> tuple[int, int]:
    """From and up to which line the title stands, whatever number is before it; (start, start) where it is not."""
    wanted = _letters(title)
    if wanted:
        for first in range(start, len(lines)):
            told = ""
            for last in range(first, min(first + _TITLE_LINES, len(lines))):
                told += _letters(lines[last])
                if told == wanted:
                    return first, last + 1
                if not wanted.startswith(told):
                    break
    return start, start


def _letters(text: str) -> str:
    """What is compared of a title: no numbering in front, and no white space."""
    return "".join(re.sub(r"^[\W\d]*(?=\w)", "", text).casefold().split())
