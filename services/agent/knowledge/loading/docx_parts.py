"""The parts of a .docx beside its text: where each is, which styles are headings, and what its notes say."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from services.agent.knowledge.loading.docx_package import DocxPackage

_TITLE: Final = "title"
_HEADING: Final = "heading "
TITLE_LEVEL: Final = 0
"""Of the document's own title, above all headings."""

_MAX_STYLE_CHAIN: Final = 16


def related(package: DocxPackage, part: str) -> Mapping[str, str]:
    """The parts that a part refers to ("" for the package itself), by the last word of how it does."""
    folder, name = posixpath.split(part)
    relations = posixpath.join(folder, "_rels", f"{name}.rels")
    if not package.has(relations):
        return {}
    found = _Relations(folder)
    package.parse_whole(relations, found)
    return found.targets


@dataclass(frozen=True, slots=True)
class ParagraphStyle:
    """`level` of a heading's, by its own outline level, its name, or its base's; `is_item` of a list's."""

    level: int | None
    is_item: bool


def paragraph_styles(package: DocxPackage, part: str | None) -> Mapping[str, ParagraphStyle]:
    if part is None or not package.has(part):
        return {}
    styles = _Styles()
    package.parse_whole(part, styles)
    return {style: ParagraphStyle(styles.level(style), styles.is_item(style)) for style in styles.named}


def notes(package: DocxPackage, part: str | None, *, element: str) -> Mapping[str, str]:
    """The text of each footnote or endnote, by its id."""
    if part is None or not package.has(part):
        return {}
    found = _Notes(element)
    package.parse_whole(part, found)
    return found.texts


class _Relations:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.targets: dict[str, str] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "Relationship" and attributes.get("TargetMode") != "External":
            kind = attributes.get("Type", "").rpartition("/")[2]
            target = posixpath.join("/", self._folder, attributes.get("Target", ""))
            self.targets.setdefault(kind, posixpath.normpath(target).lstrip("/"))

    def end(self, name: str) -> None: ...

    def text(self, text: str) -> None: ...


class _Styles:
    def __init__(self) -> None:
        self.named: dict[str, str] = {}
        self._levels: dict[str, int] = {}
        self._bases: dict[str, str] = {}
        self._items: dict[str, bool] = {}
        self._style = ""

    def level(self, style: str) -> int | None:
        for each in self._chain(style):
            if each in self._levels:
                return self._levels[each]
            name = self.named.get(each, "")
            if name == _TITLE:
                return TITLE_LEVEL
            if name.startswith(_HEADING) and name.removeprefix(_HEADING) in "123456789":
                return int(name.removeprefix(_HEADING))
        return None

    def is_item(self, style: str) -> bool:
        return next((self._items[each] for each in self._chain(style) if each in self._items), False)

    def _chain(self, style: str) -> Iterator[str]:
        """The style, and those that it is based on."""
        for _ in range(_MAX_STYLE_CHAIN):
            yield style
            if style not in self._bases:
                return
            style = self._bases[style]

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        value = attributes.get("val", "")
        if name == "style":
            self._style = attributes.get("styleId", "") if attributes.get("type") == "paragraph" else ""
        elif not self._style:
            return
        elif name == "name":
            self.named[self._style] = value.lower()
        elif name == "basedOn":
            self._bases[self._style] = value
        elif name == "outlineLvl" and (level := outline_level(value)):
            self._levels[self._style] = level
        elif name == "numId":
            # Zero takes a base's numbering away.
            self._items[self._style] = value != "0"

    def end(self, name: str) -> None:
        if name == "style":
            self._style = ""

    def text(self, text: str) -> None: ...


class _Notes:
    def __init__(self, element: str) -> None:
        self._element = element
        self._pieces: list[str] = []
        self._id = ""
        self._in_text = False
        self.texts: dict[str, str] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == self._element:
            # Those of another type are the lines that part notes from text.
            self._id = attributes.get("id", "") if "type" not in attributes else ""
            self._pieces.clear()
        elif name in ("p", "tab", "br"):
            self._pieces.append(" ")
        self._in_text = name == "t"

    def end(self, name: str) -> None:
        if name == self._element and self._id:
            self.texts[self._id] = " ".join("".join(self._pieces).split())
        self._in_text = False

    def text(self, text: str) -> None:
        if self._in_text:
            self._pieces.append(text)


def outline_level(value: str) -> int | None:
    """1 to 9 for a heading's level, which is written from 0; None for that of text."""
    return int(value) + 1 if len(value) == 1 and value in "012345678" else None
