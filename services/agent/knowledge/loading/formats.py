"""The kinds of documents that can be read, by the endings of their names."""

from typing import Final

ENDINGS: Final = (".txt", ".md", ".html", ".htm", ".pdf", ".docx")


def ending_of(filename: str) -> str:
    stem, dot, ending = filename.rpartition(".")
    return dot + ending.lower() if stem else ""


def ending_fault(filename: str) -> str | None:
    """What a document's name may end in, where this one does not; None where it does."""
    return None if ending_of(filename) in ENDINGS else f"a name that ends in one of {', '.join(ENDINGS)}"
