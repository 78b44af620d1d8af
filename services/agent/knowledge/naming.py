"""What collections and documents may be called."""

import re
from typing import Final

DEFAULT_COLLECTION: Final = "default"
_COLLECTION: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MAX_FILENAME_BYTES: Final = 255


def collection_fault(name: str) -> str | None:
    """What a collection's name may be, where this one is not; None where it is."""
    if _COLLECTION.fullmatch(name):
        return None
    return "1 to 128 of A-Z a-z 0-9 . _ -, or empty for the default one"


def filename_fault(name: str) -> str | None:
    """What a document's name may be, where this one is not; None where it is."""
    if not name.strip():
        return "a file name"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "text without lone surrogates"
    if size > _MAX_FILENAME_BYTES:
        return f"at most {_MAX_FILENAME_BYTES} bytes"
    if "/" in name or "\\" in name or not name.isprintable():
        return "a name without path separators and control characters"
    return None
