"""A table of HTML, row by row, its cells apart."""

from typing import Final

from selectolax.lexbor import LexborNode

from services.agent.knowledge.loading.html_tree import visible_text, walk
from services.agent.knowledge.loading.rows import Spans, row_line

_MAX_SPAN: Final = 1_000


def table_lines(table: LexborNode) -> list[str]:
    """Its caption, and a line for each row; a cell that spans rows is told in each of them."""
    rows = _Rows()
    walk(table, rows)
    rows.end_row()
    return rows.lines


class _Rows:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._row: list[str] | None = None
        self._spans = Spans()

    def enter(self, node: LexborNode) -> bool:
        if node.tag == "tr":
            self.end_row()
            self._row = []
        elif node.tag in ("td", "th"):
            row = self._row = self._row if self._row is not None else []
            text = visible_text(node)
            self._spans.fill(row)
            self._spans.begin(len(row), text, rows=_span(node, "rowspan"))
            row.append(text)
            return False
        elif node.tag == "caption" and (caption := visible_text(node)):
            self.lines.append(caption)
            return False
        return True

    def leave(self, node: LexborNode) -> None: ...

    def text(self, text: str) -> None:
        # A parser moves what stands between cells before the table.
        if text.strip():
            self.lines.append(" ".join(text.split()))

    def end_row(self) -> None:
        if self._row is not None:
            self._spans.fill(self._row)
            if any(self._row):
                self.lines.append(row_line(self._row))
        self._row = None


def _span(node: LexborNode, name: str) -> int:
    given = node.attributes.get(name) or "1"
    return min(int(given), _MAX_SPAN) if given.isascii() and given.isdecimal() and len(given) < 6 else 1
