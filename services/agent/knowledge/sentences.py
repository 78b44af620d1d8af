"""Where text may be cut: sentence borders of Chinese and English, paragraphs, list items and tables.

Every search below looks at a bounded stretch, so the time is linear in the text whatever it holds, and no
single call into the regex engine keeps the interpreter to itself for long.
"""

import re
from collections.abc import Iterator
from typing import Final

_BORDER: Final = re.compile(
    r"(?P<cjk>[。！？…]+[”’」』）】》\"]*)"
    r"|(?P<latin>[.!?]+[\"'”’)\]]*)(?=\s)"
    r"|(?P<line>\n)"
)
_ABBREVIATIONS: Final = frozenset(
    "e.g i.e cf vs approx resp no nos fig dr mr mrs ms st prof incl excl max min ca".split()
)
_STARTS_ITEM: Final = re.compile(r"[ \t]{0,12}(?:[-*+•|>#]|\d{1,4}[.)、]|[（(]?[一二三四五六七八九十]{1,3}[、)）])")


_LEAST_CHARACTERS: Final = 12
"""A border is looked for only so far on: very short sentences share a span, so that none costs more than it holds."""


def sentence_spans(text: str, limit: int) -> Iterator[tuple[int, int]]:
    """Spans that tile the text, each a sentence (or list item, or table) with the white space after it.

    Very short sentences share a span. No span is longer than `limit`: a sentence that would be is cut at
    white space, or else anywhere.
    """
    for start, end in _sentences(text, limit):
        while end - start > limit:
            cut = _cut_within(text, start, start + limit)
            yield start, cut
            start = cut
        if end > start:
            yield start, end


def _cut_within(text: str, start: int, end: int) -> int:
    """The last white space before `end` in the second half of the stretch, or `end`."""
    middle = start + (end - start) // 2
    cut = max(text.rfind(" ", middle, end), text.rfind("\n", middle, end))
    return cut + 1 if cut >= 0 else end


def _sentences(text: str, limit: int) -> Iterator[tuple[int, int]]:
    start = 0
    position = _LEAST_CHARACTERS
    length = len(text)
    while start < length:
        if text[start] == "|" and (end := _table_end(text, start, limit)) > start:
            yield start, end
            start, position = end, end + _LEAST_CHARACTERS
            continue
        # One character more than the stretch, for the look-ahead at its end.
        found = _BORDER.search(text, position, min(length, start + limit + 1))
        if found is None:
            end = min(length, start + limit)
            end = end if end == length else _cut_within(text, start, end)
        elif (end := _end_at(text, found, start)) < 0:
            position = found.end()
            continue
        end = _past_space(text, end)
        yield start, end
        start, position = end, end + _LEAST_CHARACTERS


def _end_at(text: str, found: re.Match[str], start: int) -> int:
    """Where a sentence ends at this mark, or -1 where it does not."""
    if found.lastgroup == "cjk":
        return found.end()
    if found.lastgroup == "latin":
        if found.group().startswith(".") and _is_abbreviation(text, start, found.start()):
            return -1
        after = _next_visible(text, found.end())
        return -1 if after.islower() and found.group() == "." else found.end()
    after_line = found.end()
    line_start = text.rfind("\n", start, found.start()) + 1 or start
    if _is_blank_line(text, after_line) or _STARTS_ITEM.match(text, after_line):
        return after_line
    if text[line_start : line_start + 1] == "|":
        return after_line
    return -1


def _is_abbreviation(text: str, start: int, dot: int) -> bool:
    word_start = max(text.rfind(" ", max(start, dot - 12), dot), text.rfind("\n", max(start, dot - 12), dot)) + 1
    word = text[word_start or start : dot].lstrip("(\"'“‘").lower()
    return word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha())


def _next_visible(text: str, position: int) -> str:
    for character in text[position : position + 8]:
        if not character.isspace():
            return character
    return ""


def _is_blank_line(text: str, position: int) -> bool:
    stretch = text[position : position + 64]
    line, newline, _ = stretch.partition("\n")
    return not line.strip() and (bool(newline) or position + len(stretch) == len(text))


def _past_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _table_end(text: str, start: int, limit: int) -> int:
    """Where the table that starts here ends, or `start` where it is longer than `limit` or no table."""
    end = start
    while text.startswith("|", end):
        newline = text.find("\n", end, start + limit + 1)
        if newline < 0:
            end = len(text) if len(text) - start <= limit else start
            break
        end = newline + 1
    if end > start:
        end = _past_space(text, end)
    return end if end - start <= limit else start
