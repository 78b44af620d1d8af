"""HTML: the page's main text with its headings, lists, tables and code; navigation and scripts are left out."""

import re
from collections.abc import Iterator
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from services.agent.knowledge.loading.blocks import Block, BlockWriter, OpenedDocument
from services.agent.knowledge.loading.encoding import checked_text, decode_marked, decode_text, decode_utf8
from services.agent.knowledge.loading.html_table import table_lines
from services.agent.knowledge.loading.html_tree import BLOCKS, has_inside, main_parts, visible_text, walk

_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
# In a heading that was never closed.
_NOT_IN_A_HEADING: Final = "p, table, ul, ol, dl, pre, h1, h2, h3, h4, h5, h6"
# Of a table that only arranges the page.
_NOT_IN_A_CELL: Final = "table, pre, dl, h1, h2, h3, h4, h5, h6"
_META: Final = re.compile(rb"<meta[^>]{0,512}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{2,32})", re.IGNORECASE)
_META_WITHIN: Final = 4096
_MOST_BROKEN: Final = 0.01
# A page may name any codec that Python has, and some of those are no encodings of text.
_ENCODINGS: Final = {
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "x-gbk"), "gb18030"),
    **dict.fromkeys(("iso-8859-1", "latin1", "us-ascii", "ascii", "windows-1252"), "cp1252"),
    **dict.fromkeys(("big5", "big5-hkscs"), "big5hkscs"),
    **dict.fromkeys(("shift_jis", "shift-jis", "x-sjis", "sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "windows-949"), "cp949"),
    **{name: name for name in ("euc-jp", "iso-2022-jp", "koi8-r", "koi8-u")},
    **{f"iso-8859-{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"windows-{page}": f"cp{page}" for page in (1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258)},
    **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
}


def open_html(content: bytes) -> OpenedDocument:
    return OpenedDocument(_blocks(_decode(content)))


def _decode(content: bytes) -> str:
    """By byte order mark; as UTF-8 where it is, since nothing else looks like it; by what the page says; or found."""
    text = decode_marked(content)
    if text is not None:
        return checked_text(text)
    declared = _META.search(content[:_META_WITHIN])
    encoding = _ENCODINGS.get(declared[1].decode("ascii").lower()) if declared else None
    # All bytes of ISO-2022-JP are ASCII.
    if encoding is None or (encoding != "iso-2022-jp" and decode_utf8(content) is not None):
        return decode_text(content)
    text = content.decode(encoding, "replace")
    if text.count("\ufffd") > _MOST_BROKEN * len(text):
        return decode_text(content)
    return checked_text(text)


def _blocks(text: str) -> Iterator[Block]:
    try:
        page = LexborHTMLParser(text)
    except SelectolaxError:
        # No text is wrong in the eyes of an HTML parser: it has no more memory.
        raise MemoryError from None
    reader = _Reader()
    parts = main_parts(page)
    title = page.css_first("head > title")
    if title is not None and not any(part.css_first("h1") for part in parts):
        reader.title(visible_text(title))
    for part in parts:
        walk(part, reader)
        reader.end_paragraph()
    return iter(reader.blocks.finish())


class _List:
    def __init__(self, node: LexborNode) -> None:
        start = node.attributes.get("start") or "1" if node.tag == "ol" else ""
        self._number = int(start) if start.isascii() and start.isdecimal() and len(start) < 7 else 1
        self._is_numbered = node.tag == "ol"

    def next_marker(self) -> str:
        if not self._is_numbered:
            return "- "
        self._number += 1
        return f"{self._number - 1}. "


class _Terms:
    """A definition list: its terms, until their definition comes; `level` is that of its terms' headings."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.pending: list[str] = []


class _Reader:
    """Writes what it visits, block by block."""

    def __init__(self) -> None:
        self.blocks = BlockWriter()
        self._inline: list[str] = []
        self._lists: list[_List] = []
        self._marker = ""
        self._terms: list[_Terms] = []
        self._preformatted = 0

    def title(self, title: str) -> None:
        if title:
            self.blocks.heading(title, 1)

    def enter(self, node: LexborNode) -> bool:
        tag = node.tag or ""
        if tag == "br":
            self._inline.append("\n")
            return False
        if tag not in BLOCKS:
            return True
        self.end_paragraph()
        if tag in _HEADINGS and not has_inside(node, _NOT_IN_A_HEADING):
            self._heading(visible_text(node), _HEADINGS[tag])
            return False
        if tag == "table" and not has_inside(node, _NOT_IN_A_CELL):
            self._table(node)
            return False
        if tag == "dt" and self._terms:
            self._terms[-1].pending.append(visible_text(node))
            return False
        self._begin(node, tag)
        return True

    def leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag not in BLOCKS:
            return
        self.end_paragraph()
        if tag == "pre":
            self._preformatted -= 1
        elif tag in ("ul", "ol"):
            self._lists.pop()
            if not self._lists:
                self.blocks.line("")
        elif tag == "li":
            self._marker = ""
        elif tag == "dl":
            self._end_terms(self._terms.pop())

    def text(self, text: str) -> None:
        # Elsewhere a line ends by an element alone.
        self._inline.append(text if self._preformatted else text.replace("\n", " "))

    def end_paragraph(self) -> None:
        text = "".join(self._inline)
        self._inline.clear()
        if not text.strip():
            return
        if self._preformatted:
            lines = text.expandtabs(4).rstrip().split("\n")
            lines = lines[next(at for at, line in enumerate(lines) if line.strip()) :]
        else:
            lines = [" ".join(line.split()) for line in text.strip().split("\n")]
        self._write(lines)

    def _begin(self, node: LexborNode, tag: str) -> None:
        if tag == "pre":
            self._preformatted += 1
        elif tag in ("ul", "ol"):
            self._lists.append(_List(node))
        elif tag == "li":
            self._marker = self._lists[-1].next_marker() if self._lists else "- "
        elif tag == "dl":
            self._terms.append(_Terms(self.blocks.level + 1))
        elif tag == "dd" and self._terms:
            self._tell_terms(self._terms[-1])

    def _tell_terms(self, terms: _Terms) -> None:
        told = ", ".join(term for term in terms.pending if term)
        terms.pending.clear()
        if not told:
            return
        if terms.level > 1:
            self._heading(told, terms.level)
        else:
            # Below no heading, none could end the last term's section.
            self._write([told])

    def _end_terms(self, terms: _Terms) -> None:
        self._tell_terms(terms)
        self.blocks.close(terms.level)

    def _heading(self, text: str, level: int) -> None:
        if text:
            self.blocks.heading(text, level)

    def _table(self, node: LexborNode) -> None:
        lines = table_lines(node)
        if lines:
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        """A paragraph, or in a list an item's: behind its marker, without a blank line around."""
        depth = len(self._lists)
        indent = "  " * max(depth - 1, 0)
        first = indent + (self._marker or ("  " if depth else ""))
        rest = indent + ("  " if depth else "")
        self._marker = ""
        for number, line in enumerate(lines):
            self.blocks.line(((rest if number else first) + line).rstrip())
        if not depth:
            self.blocks.line("")
