"""A table of a .docx, row by row, its cells apart."""

from collections.abc import Iterator, Mapping

from services.agent.knowledge.loading.rows import REPEATED_CHARACTERS, row_line


class Table:
    """Is told of its rows and cells; a cell that is merged with the one above tells what that one does."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._above: dict[int, str] = {}
        self._cell: list[str] = []
        self._column = 0
        self._width = 1
        self._is_merged = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "tr":
            self._rows.append([])
            self._column = 0
        elif name == "tc":
            self._cell = []
            self._width = 1
            self._is_merged = False
        elif name == "gridSpan":
            span = attributes.get("val", "")
            self._width = int(span) if span.isascii() and span.isdecimal() and len(span) < 4 else 1
        elif name == "vMerge":
            self._is_merged = attributes.get("val") != "restart"

    def end(self, name: str) -> None:
        if name == "tc" and self._rows:
            text = " ".join(self._cell)
            if self._is_merged:
                text = text or self._above.get(self._column, "")
            self._above[self._column] = text if len(text) <= REPEATED_CHARACTERS else ""
            self._rows[-1].append(text)
            self._column += self._width

    def add(self, text: str) -> None:
        """A paragraph of the present cell, or a table in it."""
        if text:
            self._cell.append(text)

    def lines(self) -> list[str]:
        return [row_line(row) for row in self._rows if any(row)]

    def told_rows(self) -> Iterator[str]:
        return (", ".join(cell for cell in row if cell) for row in self._rows if any(row))
