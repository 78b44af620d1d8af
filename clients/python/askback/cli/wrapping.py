"""Text that is written while it is still coming: wrapped at words, or as it is."""

import re
from collections.abc import Callable

from rich.cells import cell_len

# A Chinese, Japanese or Korean character may end a line; what closes a clause may not begin one.
_WIDE = "\u1100-\u11ff\u2e80-\u2fff\u3040-\ua4cf\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_CLOSING = "、。〉》」』】〕！），．：；？］｝”’"
_TOKEN = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[{_CLOSING}]|[^\s{_WIDE}{_CLOSING}]+")
_MAY_GROW = re.compile(rf"[^\s{_WIDE}{_CLOSING}]+\Z")


class WrappedText:
    """Writes pieces of text as lines of at most `width` cells; a word is held back until its end has come."""

    def __init__(self, write: Callable[[str], None], *, width: int) -> None:
        self._write = write
        self._width = max(width, 20)
        self._column = 0
        self._space = ""
        self._held = ""

    def feed(self, piece: str) -> None:
        text = self._held + piece
        growing = _MAY_GROW.search(text)
        end = growing.start() if growing else len(text)
        self._held = text[end:]
        for token in _TOKEN.findall(text[:end]):
            self._put(token)

    def finish(self) -> None:
        """Writes what was held back, and ends the line."""
        held, self._held = self._held, ""
        if held:
            self._put(held)
        if self._column:
            self._put("\n")

    def _put(self, token: str) -> None:
        if token == "\n":
            self._write("\n")
            self._column, self._space = 0, ""
        elif token.isspace():
            self._space += token.expandtabs(4)
        else:
            cells = cell_len(token)
            hangs = token in _CLOSING
            if self._column and not hangs and self._column + len(self._space) + cells > self._width:
                self._write("\n")
                self._column, self._space = 0, ""
            self._write(self._space + token)
            self._column += len(self._space) + cells
            self._space = ""


class UnwrappedText:
    """Writes pieces of text as they are, and ends the last line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._line_open = False

    def feed(self, piece: str) -> None:
        self._write(piece)
        self._line_open = not piece.endswith("\n")

    def finish(self) -> None:
        if self._line_open:
            self._write("\n")
