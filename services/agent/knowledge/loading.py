"""Bytes of a document to blocks of text: one loader for each kind of file, chosen by the name's ending."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.agent.errors import DocumentUnreadable
from services.runtime.errors import InvalidField

MAX_HEADING_CHARACTERS: Final = 200
"""A line that is longer is text, whatever it looks like."""

_MAX_HEADINGS: Final = 20_000
"""Further headings are read as text: a document of headings alone must not cost a hundred times its size."""

_PLAIN_HEADING_CHARACTERS: Final = 80
_PLAIN_HEADING_ENDINGS: Final = frozenset(".。!！?？;；,，:：…|")
_BULLETS: Final = ("- ", "* ", "+ ", "• ", "|", ">")


@dataclass(frozen=True, slots=True)
class Block:
    """A run of text, or a heading where `heading_level` is 1 or more; `page_number` as the document numbers it."""

    text: str
    heading_level: int = 0
    page_number: str = ""


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """A document's blocks in reading order; `page_count` is 0 for formats without pages."""

    blocks: list[Block] = field(default_factory=list)
    page_count: int = 0


Loader = Callable[[str, bytes], LoadedDocument]


def load_document(filename: str, content: bytes) -> LoadedDocument:
    """Reads a document as what its name says it is.

    Raises InvalidField for an ending that is not known, DocumentUnreadable for content that cannot be read
    as that, or that holds no text. It takes time with the size: keep it off the event loop.
    """
    if (fault := ending_fault(filename)) is not None:
        raise InvalidField.of("header.filename", fault)
    loaded = LOADERS[_ending(filename)](filename, content)
    if not any(block.text.strip() for block in loaded.blocks):
        raise DocumentUnreadable(filename, "it holds no text")
    return loaded


def ending_fault(filename: str) -> str | None:
    """What a document's name may end in, where this one does not; None where it does."""
    return None if _ending(filename) in LOADERS else f"a name that ends in one of {', '.join(LOADERS)}"


def _ending(filename: str) -> str:
    stem, dot, ending = filename.rpartition(".")
    return dot + ending.lower() if stem else ""


def _decode(filename: str, content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise DocumentUnreadable(filename, "it is not UTF-8 text, or UTF-16 with a byte order mark") from None
    if "\0" in text:
        raise DocumentUnreadable(filename, "it holds NUL characters, so it is no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


class _Blocks:
    """Gathers lines into blocks, a new one at each heading."""

    def __init__(self) -> None:
        self._done: list[Block] = []
        self._lines: list[str] = []
        self._headings = 0

    def line(self, line: str) -> None:
        self._lines.append(line)

    def heading(self, text: str, level: int) -> None:
        self._headings += 1
        if self._headings > _MAX_HEADINGS:
            self._lines.append(text)
            return
        self._flush()
        self._done.append(Block(text, heading_level=level))

    def finish(self) -> list[Block]:
        self._flush()
        return self._done

    def _flush(self) -> None:
        text = "\n".join(self._lines).strip("\n")
        if text.strip():
            self._done.append(Block(text))
        self._lines.clear()


def _load_markdown(filename: str, content: bytes) -> LoadedDocument:
    lines = _decode(filename, content).split("\n")
    blocks = _Blocks()
    fence = ""
    skip = False
    for number, line in enumerate(lines):
        if skip:
            skip = False
            continue
        bare = line.strip()
        if fence or bare.startswith(("```", "~~~")):
            fence = _fence_after(bare, fence)
            blocks.line(line)
        elif (level := _atx_level(line)) and (title := bare[level:].strip().rstrip("#").rstrip()):
            blocks.heading(title, level)
        elif level := _underlined_level(lines, number):
            blocks.heading(bare, level)
            skip = True
        else:
            blocks.line(line)
    return LoadedDocument(blocks.finish())


def _fence_after(bare: str, fence: str) -> str:
    """The fence that is open after this line: none where the line closes it."""
    if not fence:
        return bare[: len(bare) - len(bare.lstrip(bare[0]))]
    return "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence


def _atx_level(line: str) -> int:
    if len(line) > MAX_HEADING_CHARACTERS or line.startswith("    "):
        return 0
    bare = line.strip()
    level = len(bare) - len(bare.lstrip("#"))
    return level if 1 <= level <= 6 and bare[level : level + 1].isspace() else 0


def _underlined_level(lines: list[str], number: int) -> int:
    """1 or 2 for a paragraph of one line that is underlined by "===" or "---"."""
    line = lines[number]
    if not line.strip() or len(line) > MAX_HEADING_CHARACTERS or line.strip().startswith(_BULLETS):
        return 0
    if number + 1 == len(lines) or (number and lines[number - 1].strip()):
        return 0
    under = lines[number + 1].strip()
    if len(under) < 2 or under.strip(under[0]):
        return 0
    return {"=": 1, "-": 2}.get(under[0], 0)


def _load_plain_text(filename: str, content: bytes) -> LoadedDocument:
    """A short line that stands alone and is no sentence is a heading; the first, before any text, the title."""
    lines = _decode(filename, content).split("\n")
    blocks = _Blocks()
    begun = False
    for number, line in enumerate(lines):
        if _stands_as_heading(lines, number):
            blocks.heading(line.strip(), 2 if begun else 1)
        else:
            blocks.line(line)
        begun = begun or bool(line.strip())
    return LoadedDocument(blocks.finish())


def _stands_as_heading(lines: list[str], number: int) -> bool:
    line = lines[number]
    if len(line) > _PLAIN_HEADING_CHARACTERS or line[:1].isspace():
        return False
    bare = line.strip()
    if len(bare) < 2 or bare[-1] in _PLAIN_HEADING_ENDINGS or bare.startswith(_BULLETS):
        return False
    if not any(character.isalpha() for character in bare):
        return False
    alone_above = number == 0 or not lines[number - 1].strip()
    alone_below = number + 1 < len(lines) and not lines[number + 1].strip()
    return alone_above and alone_below


LOADERS: Final[Mapping[str, Loader]] = {".txt": _load_plain_text, ".md": _load_markdown}
"""Every kind of document that can be read, by the ending of its name."""
