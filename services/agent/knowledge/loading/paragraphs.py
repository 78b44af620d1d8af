"""Lines that were broken to fit a page, joined again."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from services.agent.language import WIDE

_WIDE: Final = re.compile(f"[{WIDE}]")
_ENDINGS: Final = frozenset('.。!！?？:：;；…”"」』）)')
_ITEMS: Final = ("- ", "• ", "· ", "▪ ", "– ", "* ", "● ", "◦ ", "‣ ", "○ ", "■ ")
_FULL_SHARE: Final = 0.7
"""A line this near to the longest of its page was broken by the margin, and goes on in the next."""


def joined_lines(lines: Sequence[str]) -> str:
    return "\n".join(_paragraphs(lines))


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    # The fifth longest: a heading or a table's row may be wider than the text.
    width = sorted(map(_width, lines), reverse=True)[min(4, (len(lines) - 1) // 2)]
    paragraph = [lines[0]]
    for before, line in pairwise(lines):
        if before[-1] not in _ENDINGS and _width(before) >= _FULL_SHARE * width and not line.startswith(_ITEMS):
            if not (_WIDE.match(before[-1]) and _WIDE.match(line[0])):
                paragraph.append(" ")
        else:
            yield "".join(paragraph)
            paragraph = []
        paragraph.append(line)
    yield "".join(paragraph)


def _width(line: str) -> int:
    """In letters: a Chinese character is as wide as two."""
    return len(line) + len(_WIDE.findall(line))
