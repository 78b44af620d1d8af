"""The encoding of a text: byte order mark, UTF-8, UTF-16, GB18030, Latin-1, tried in this order.

A small ordered try, and no statistical guess over dozens of encodings: each of these either leaves a mark or is
told from the others by what its bytes must look like, so the same bytes are read the same way at any length.
"""

import codecs
import re
from itertools import islice
from typing import Final

from services.agent.knowledge.loading.blocks import Unreadable

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    # Before UTF-16's, which it begins with.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_OTHER_KINDS: Final = {
    b"%PDF-": "it is a PDF",
    b"PK\x03\x04": "it is a ZIP archive, or a document in one",
    b"{\\rtf": "it is RTF",
    b"\xd0\xcf\x11\xe0": "it is an Office document of the older kind",
}
_HIGH: Final = bytes(range(0x80, 0x100))
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# Of which any page of Chinese has some; none of them is two ASCII letters or marks read as one.
_COMMON_CHINESE: Final = frozenset("的一是不了人我他这，。、：；（）")
_LEAST_COMMON: Final = 0.02
_MOST_BROKEN: Final = 0.01
_SAMPLE_BYTES: Final = 64 * 1024
_SAMPLE_PAIRS: Final = 16 * 1024
# Of a two-byte character in GB2312, which holds nearly all of any Chinese text, both bytes are high.
_GB_PAIR: Final = re.compile(rb"[\x81-\xfe](?:[\x40-\x7e\x80-\xfe]|[\x30-\x39][\x81-\xfe][\x30-\x39])")


def decode_text(content: bytes) -> str:
    """The text, with "\\n" for every kind of line end; raises Unreadable for what is none."""
    for start, what in _OTHER_KINDS.items():
        if content.startswith(start):
            raise Unreadable(f"{what}, not text")
    text = decode_marked(content)
    return checked_text(_decode_unmarked(content) if text is None else text)


def decode_marked(content: bytes) -> str | None:
    """The text where a byte order mark names its encoding, or else None."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            try:
                return content[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                raise Unreadable(f"it begins as {encoding[:6].upper()} and is broken further on") from None
    return None


def decode_utf8(content: bytes) -> str | None:
    """The text where the bytes are UTF-8, up to one broken character in a hundred; or else None."""
    text = content.decode("utf-8", "replace")
    broken = text.count("\ufffd") - content.count("\ufffd".encode())
    if broken == 0:
        return text
    # Text of another encoding has hardly any sequence that is UTF-8 by chance.
    other_than_ascii = len(text) - len(content.translate(None, delete=_HIGH))
    return text if broken <= other_than_ascii * _MOST_BROKEN else None


def _decode_unmarked(content: bytes) -> str:
    text = decode_utf8(content)
    if text is not None and not _CONTROLS.search(text):
        return text
    wide = _decode_utf16(content)
    if wide is not None:
        return wide
    if text is not None:
        return text
    chinese = _decode_gb18030(content)
    return chinese if chinese is not None else _decode_latin(content)


def _decode_utf16(content: bytes) -> str | None:
    if len(content) % 2:
        return None
    for encoding, high, low in (("utf-16-le", 1, 0), ("utf-16-be", 0, 1)):
        sample = content[:_SAMPLE_BYTES]
        latin, stray = sample[high::2].count(0), sample[low::2].count(0)
        # ASCII has a zero for its high byte; few other characters have one for their low byte.
        by_zeros = latin > 0 and (stray == 0 or (stray * 20 <= latin and latin * 8 >= len(sample)))
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if _CONTROLS.search(text):
            continue
        shown = text[: _SAMPLE_BYTES // 2]
        common = sum(character in _COMMON_CHINESE for character in shown)
        # With nothing to tell by, only what is plainly Chinese counts: any two letters make a character.
        if by_zeros or common > _LEAST_COMMON * len(shown):
            return text
    return None


def _decode_gb18030(content: bytes) -> str | None:
    try:
        text = content.decode("gb18030")
    except UnicodeDecodeError:
        return None
    pairs = [found.group() for found in islice(_GB_PAIR.finditer(content), _SAMPLE_PAIRS)]
    # Latin text passes where each accented letter has a letter behind it, but its second bytes are ASCII.
    chinese = sum(len(pair) == 4 or (pair[0] >= 0xA1 and pair[1] >= 0xA1) for pair in pairs)
    return text if chinese * 2 > len(pairs) else None


def _decode_latin(content: bytes) -> str:
    """Latin-1 with the quotes and dashes of its Windows kind, in whose place it has nothing that is text."""
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        text = "\0"
    if _CONTROLS.search(text):
        raise Unreadable("it is no text in UTF-8, UTF-16, GB18030 or Latin-1")
    return text


def checked_text(text: str) -> str:
    """The text with "\\n" for every kind of line end; raises Unreadable where it holds NUL."""
    if "\0" in text:
        raise Unreadable("it holds NUL characters, so it is no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")
