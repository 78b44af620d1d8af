"""Plain text: a short line that stands alone and is no sentence is a heading; the first, before any text, the title."""

from collections.abc import Iterator
from typing import Final

from services.agent.knowledge.loading.blocks import Block, BlockWriter, OpenedDocument
from services.agent.knowledge.loading.encoding import decode_text
from services.agent.knowledge.loading.lines import lines_between

_HEADING_CHARACTERS: Final = 80
_NO_HEADING_ENDS_IN: Final = frozenset(".。!！?？;；,，:：…|")
_BULLETS: Final = ("- ", "* ", "+ ", "• ", "|", ">")


def open_plain_text(content: bytes) -> OpenedDocument:
    return OpenedDocument(_blocks(decode_text(content)))


def _blocks(text: str) -> Iterator[Block]:
    blocks = BlockWriter()
    begun = False
    for before, line, after in lines_between(text):
        if _stands_as_heading(before, line, after):
            blocks.heading(line.strip(), 2 if begun else 1)
        else:
            blocks.line(line)
        begun = begun or bool(line.strip())
        if blocks.has_finished:
            yield from blocks.take()
    yield from blocks.finish()


def _stands_as_heading(before: str | None, line: str, after: str | None) -> bool:
    # First what most lines fail at.
    if after is None or after.strip() or (before is not None and before.strip()):
        return False
    if len(line) > _HEADING_CHARACTERS or line[:1].isspace():
        return False
    bare = line.strip()
    if len(bare) < 2 or bare[-1] in _NO_HEADING_ENDS_IN or bare.startswith(_BULLETS):
        return False
    return any(character.isalpha() for character in bare)
