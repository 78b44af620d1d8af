"""Markdown: its headings, and everything else as it is written."""

from collections.abc import Iterator
from typing import Final

from services.agent.knowledge.loading.blocks import MAX_HEADING_CHARACTERS, Block, BlockWriter, OpenedDocument
from services.agent.knowledge.loading.encoding import decode_text
from services.agent.knowledge.loading.lines import lines_between

_BULLETS: Final = ("- ", "* ", "+ ", "• ", "|", ">")


def open_markdown(content: bytes) -> OpenedDocument:
    return OpenedDocument(_blocks(decode_text(content)))


def _blocks(text: str) -> Iterator[Block]:
    blocks = BlockWriter()
    fence = ""
    skip = False
    for before, line, after in lines_between(text):
        if skip:
            skip = False
            continue
        bare = line.strip()
        if fence or bare.startswith(("```", "~~~")):
            fence = _fence_after(bare, fence)
            blocks.line(line)
        elif (level := _atx_level(line)) and (title := bare[level:].strip().rstrip("#").rstrip()):
            blocks.heading(title, level)
        elif level := _underlined_level(before, line, after):
            blocks.heading(bare, level)
            skip = True
        else:
            blocks.line(line)
        if blocks.has_finished:
            yield from blocks.take()
    yield from blocks.finish()


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


def _underlined_level(before: str | None, line: str, after: str | None) -> int:
    """1 or 2 for a paragraph of one line that is underlined by "===" or "---"."""
    if not line.strip() or len(line) > MAX_HEADING_CHARACTERS or line.strip().startswith(_BULLETS):
        return 0
    if after is None or (before and before.strip()):
        return 0
    under = after.strip()
    if len(under) < 2 or under.strip(under[0]):
        return 0
    return {"=": 1, "-": 2}.get(under[0], 0)
