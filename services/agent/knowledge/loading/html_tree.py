"""What of an HTML page is shown: a walk over its tree that needs no recursion, and the page's main part."""

import re
from typing import Final, Protocol

from selectolax.lexbor import LexborHTMLParser, LexborNode

from services.agent.knowledge.loading.blocks import MAX_DEPTH, Unreadable

_TEXT: Final = "-text"

_NEVER_SHOWN: Final = frozenset(
    "head script style template noscript iframe noframes noembed object video audio canvas datalist".split()
)
_NAVIGATION: Final = frozenset({"navigation", "search", "menu", "menubar"})
_DISPLAY_NONE: Final = re.compile(r"(?:^|;)\s*display\s*:\s*none\b", re.IGNORECASE)
_PERMALINKS: Final = frozenset("¶ # § 🔗 ⚓".split())
_MAIN: Final = "main, [role=main]"
_LEAST_SHARE: Final = 2
"""A part that holds less than the half of a page's text is not taken for its main one, whatever it says."""

BLOCKS: Final = frozenset(
    "address article aside blockquote body button caption center dd details dialog dir div dl dt fieldset figcaption"
    " figure footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu ol optgroup option p"
    " pre search section summary table tbody td tfoot th thead tr ul".split()
)
"""Elements that stand on lines of their own."""


class Visitor(Protocol):
    """Is told of a tree's shown nodes in reading order."""

    def enter(self, node: LexborNode) -> bool:
        """An element begins; where it is False its inside is passed by, and `leave` is not called."""
        ...

    def leave(self, node: LexborNode) -> None: ...

    def text(self, text: str) -> None: ...


def walk(root: LexborNode, visitor: Visitor) -> None:
    """Visits all below the root, without recursion; raises Unreadable past MAX_DEPTH."""
    # The way down to the present node: to ask each for its parent would make another object every time.
    path: list[LexborNode] = []
    node = root.first_child
    while node is not None or path:
        if node is None:
            done = path.pop()
            visitor.leave(done)
            node = done.next
        elif node.tag == _TEXT:
            # A soft hyphen is a place to break a word, and no part of it.
            visitor.text((node.text_content or "").replace("\u00ad", ""))
            node = node.next
        elif is_shown(node) and visitor.enter(node):
            path.append(node)
            if len(path) > MAX_DEPTH:
                raise Unreadable(f"its elements are nested more than {MAX_DEPTH} deep")
            node = node.first_child
        else:
            node = node.next


def is_shown(node: LexborNode) -> bool:
    """Whether an element is part of a page's text; comments are not, and neither is navigation."""
    tag = node.tag
    if tag is None or tag.startswith("-") or tag in _NEVER_SHOWN or tag == "nav":
        return False
    attributes = node.attributes
    if not attributes:
        return tag != "dialog"
    if attributes.get("role") in _NAVIGATION:
        return False
    if attributes.get("hidden", "shown") not in ("shown", "until-found"):
        return False
    if tag == "dialog" and "open" not in attributes:
        return False
    if tag == "a" and (attributes.get("href") or "").startswith("#"):
        return (node.text() or "").strip() not in _PERMALINKS
    return not _DISPLAY_NONE.search(attributes.get("style") or "")


def has_inside(node: LexborNode, selector: str) -> bool:
    # A node is among what is found below it.
    return any(found.mem_id != node.mem_id for found in node.css(selector))


def visible_text(root: LexborNode) -> str:
    """All shown text below the root as one line, the items of lists with semicolons between."""
    line = _OneLine()
    walk(root, line)
    return " ".join("".join(line.pieces).split()).replace(" ;", ";").lstrip("; ")


class _OneLine:
    def __init__(self) -> None:
        self.pieces: list[str] = []

    def enter(self, node: LexborNode) -> bool:
        if node.tag in BLOCKS or node.tag == "br":
            self.pieces.append(" ; " if node.tag == "li" else " ")
        return True

    def leave(self, node: LexborNode) -> None:
        if node.tag in BLOCKS:
            self.pieces.append(" ")

    def text(self, text: str) -> None:
        self.pieces.append(text)


def main_parts(page: LexborHTMLParser) -> list[LexborNode]:
    """The parts that say that they are the page's main ones, where they hold most of it; or else all of it."""
    body = page.body
    if body is None:
        return [page.root] if page.root is not None else []
    for selector in (_MAIN, "article"):
        parts = _outermost(body, selector)
        if parts and _LEAST_SHARE * sum(map(_length, parts)) >= _length(body):
            return parts
    return [body]


def _outermost(body: LexborNode, selector: str) -> list[LexborNode]:
    wanted = {node.mem_id for node in body.css(selector)}
    if not wanted:
        return []
    finding = _Outermost(wanted)
    walk(body, finding)
    return finding.found


class _Outermost:
    def __init__(self, wanted: set[int]) -> None:
        self._wanted = wanted
        self.found: list[LexborNode] = []

    def enter(self, node: LexborNode) -> bool:
        if node.mem_id not in self._wanted:
            return True
        self.found.append(node)
        return False

    def leave(self, node: LexborNode) -> None: ...

    def text(self, text: str) -> None: ...


def _length(root: LexborNode) -> int:
    return len(visible_text(root))
