"""A reader for each kind of document: from bytes to blocks, and nothing else.

Imported where documents are read, in a process of its own: here are the parsers that strangers' bytes go through.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from services.agent.knowledge.loading.blocks import Block, OpenedDocument, Unreadable
from services.agent.knowledge.loading.docx import open_docx
from services.agent.knowledge.loading.html import open_html
from services.agent.knowledge.loading.markdown import open_markdown
from services.agent.knowledge.loading.pdf import open_pdf
from services.agent.knowledge.loading.plain_text import open_plain_text

_READERS: Final[Mapping[str, Callable[[bytes], OpenedDocument]]] = {
    ".txt": open_plain_text,
    ".md": open_markdown,
    ".html": open_html,
    ".htm": open_html,
    ".pdf": open_pdf,
    ".docx": open_docx,
}


def open_document(ending: str, content: bytes) -> OpenedDocument:
    """Opens a document as what its ending, one of ENDINGS, says; raises Unreadable where it is not that."""
    if not content:
        raise Unreadable("it is empty")
    opened = _READERS[ending](content)
    return OpenedDocument(_with_text(opened), page_count=opened.page_count)


def _with_text(opened: OpenedDocument) -> Iterator[Block]:
    holds_text = False
    for block in opened.blocks:
        holds_text = holds_text or bool(block.text.strip())
        yield block
    if not holds_text:
        raise Unreadable("it holds no text")
