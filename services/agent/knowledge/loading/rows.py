"""The rows of tables as lines."""

from collections.abc import Sequence
from typing import Final

REPEATED_CHARACTERS: Final = 200
"""A longer cell that spans rows is told in its first alone."""


def row_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


class Spans:
    """Cells that reach down into further rows."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[str, int]] = {}

    def begin(self, column: int, text: str, *, rows: int) -> None:
        if rows > 1:
            self._open[column] = (text if len(text) <= REPEATED_CHARACTERS else "", rows - 1)

    def fill(self, row: list[str]) -> None:
        """Appends the cells that reach into this row from above where it has come to their columns."""
        while (reaching := self._open.get(len(row))) is not None:
            text, rows = reaching
            if rows == 1:
                del self._open[len(row)]
            else:
                self._open[len(row)] = (text, rows - 1)
            row.append(text)
