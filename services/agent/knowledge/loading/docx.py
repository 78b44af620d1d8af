"""DOCX: the document's text in order, with its headings, lists, tables and notes."""

from collections.abc import Iterator, Mapping
from typing import Final

from services.agent.knowledge.loading.blocks import Block, BlockWriter, OpenedDocument, Unreadable
from services.agent.knowledge.loading.docx_package import DocxPackage
from services.agent.knowledge.loading.docx_parts import (
    TITLE_LEVEL,
    ParagraphStyle,
    notes,
    outline_level,
    paragraph_styles,
    related,
)
from services.agent.knowledge.loading.docx_table import Table

# What stands in the file and not in the document: the second form of a drawing, text moved elsewhere, and how
# things were before a change.
_PASSED_BY: Final = frozenset({"Fallback", "moveFrom", "pPrChange", "rPrChange", "tblPrChange", "tcPrChange"})
_NOTES: Final = {"footnoteReference": "footnote", "endnoteReference": "endnote"}
_NO_STYLE: Final = ParagraphStyle(level=None, is_item=False)
_TEXT_OF: Final = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def open_docx(content: bytes) -> OpenedDocument:
    package = DocxPackage(content)
    part = related(package, "").get("officeDocument", "word/document.xml")
    if not package.has(part):
        raise Unreadable("it is no Word document")
    parts = related(package, part)
    writer = _Writer(
        paragraph_styles(package, parts.get("styles")),
        {element: notes(package, parts.get(f"{element}s"), element=element) for element in _NOTES.values()},
    )
    return OpenedDocument(_blocks(package, part, writer))


def _blocks(package: DocxPackage, part: str, writer: "_Writer") -> Iterator[Block]:
    for _ in package.parse(part, writer):
        yield from writer.blocks.take()
    if not writer.has_body:
        raise Unreadable("it is no Word document")
    yield from writer.blocks.finish()


class _Paragraph:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.style = ""
        self.level: int | None = None
        self.item_depth: int | None = None
        self.is_no_item = False
        self.in_properties = False


class _Writer:
    """Writes what it is told of, paragraph by paragraph; those in a drawing come before the one that holds it."""

    def __init__(self, styles: Mapping[str, ParagraphStyle], noted: Mapping[str, Mapping[str, str]]) -> None:
        self.blocks = BlockWriter()
        self.has_body = False
        self._styles = styles
        self._notes = noted
        self._titled = False
        self._open: list[_Paragraph | Table] = []
        self._passed_by = 0
        self._in_text = False
        self._in_items = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._passed_by or name in _PASSED_BY:
            self._passed_by += 1
            return
        self._in_text = name == "t"
        inner = self._open[-1] if self._open else None
        if name == "body":
            self.has_body = True
        elif name == "p":
            self._open.append(_Paragraph())
        elif name == "tbl":
            self._open.append(Table())
        elif isinstance(inner, Table):
            inner.start(name, attributes)
        elif inner is not None:
            self._start_in(inner, name, attributes)

    def end(self, name: str) -> None:
        if self._passed_by:
            self._passed_by -= 1
            return
        self._in_text = False
        inner = self._open[-1] if self._open else None
        if isinstance(inner, Table):
            if name == "tbl":
                self._end_table(inner)
            else:
                inner.end(name)
        elif inner is not None:
            if name == "p":
                self._end_paragraph(inner)
            elif name == "pPr":
                inner.in_properties = False

    def text(self, text: str) -> None:
        inner = self._open[-1] if self._open else None
        if self._in_text and not self._passed_by and isinstance(inner, _Paragraph):
            inner.pieces.append(text)

    def _start_in(self, paragraph: _Paragraph, name: str, attributes: Mapping[str, str]) -> None:
        value = attributes.get("val", "")
        if name == "pPr":
            paragraph.in_properties = True
        elif name == "pStyle":
            paragraph.style = value
        elif name == "outlineLvl":
            paragraph.level = outline_level(value)
        elif name == "ilvl" and len(value) == 1 and value in "012345678":
            paragraph.item_depth = int(value)
        elif name == "numId":
            # Zero takes a style's numbering away.
            paragraph.is_no_item = value == "0"
            paragraph.item_depth = None if paragraph.is_no_item else paragraph.item_depth or 0
        elif name in _NOTES and (note := self._notes[_NOTES[name]].get(attributes.get("id", ""))):
            paragraph.pieces.append(f" ({note})")
        elif not paragraph.in_properties:
            paragraph.pieces.append(_TEXT_OF.get(name, ""))

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        self._open.pop()
        lines = [" ".join(line.split()) for line in "".join(paragraph.pieces).strip().split("\n")]
        if not any(lines):
            return
        cell = next((outer for outer in reversed(self._open) if isinstance(outer, Table)), None)
        style = self._styles.get(paragraph.style, _NO_STYLE)
        level = paragraph.level if paragraph.level is not None else style.level
        if cell is not None:
            cell.add(" ".join(lines))
        elif level is not None:
            self._heading(" ".join(lines), level)
        else:
            depth = paragraph.item_depth
            self._write(lines, item_depth=0 if depth is None and style.is_item and not paragraph.is_no_item else depth)

    def _heading(self, text: str, level: int) -> None:
        self._in_items = False
        if level == TITLE_LEVEL:
            self._titled = True
        # Below a title, a heading of the first level is the second.
        self.blocks.heading(text, level + self._titled)

    def _end_table(self, table: Table) -> None:
        self._open.pop()
        outer = next((outer for outer in reversed(self._open) if isinstance(outer, Table)), None)
        if outer is not None:
            outer.add("; ".join(table.told_rows()))
        else:
            self._write(table.lines())

    def _write(self, lines: list[str], *, item_depth: int | None = None) -> None:
        if self._in_items and item_depth is None:
            self.blocks.line("")
        self._in_items = item_depth is not None
        indent = "  " * (item_depth or 0)
        for number, line in enumerate(lines):
            marker = ("  " if number else "- ") if self._in_items else ""
            self.blocks.line((indent + marker + line).rstrip())
        if not self._in_items:
            self.blocks.line("")
