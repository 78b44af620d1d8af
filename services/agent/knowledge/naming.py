"""What collections and documents may be called."""

import re
from typing import Final

from services.runtime.errors import InvalidField

DEFAULT_COLLECTION: Final = "default"
_COLLECTION: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MAX_FILENAME_BYTES: Final = 255


def collection_name(given: str, *, field: str = "collection") -> str:
    """The name, "default" for an empty one; raises InvalidField on `field`."""
    name = given or DEFAULT_COLLECTION
    if not _COLLECTION.fullmatch(name):
        raise InvalidField.of(field, "1 to 128 of A-Z a-z 0-9 . _ -, or empty for the default one")
    return name


def document_filename(given: str, *, field: str = "filename") -> str:
    """The name as it is; raises InvalidField on `field`."""
    if not given.strip():
        raise InvalidField.of(field, "a file name")
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise InvalidField.of(field, "text without lone surrogates") from None
    if size > _MAX_FILENAME_BYTES:
        raise InvalidField.of(field, f"at most {_MAX_FILENAME_BYTES} bytes")
    if "/" in given or "\\" in given or not given.isprintable():
        raise InvalidField.of(field, "a name without path separators and control characters")
    return given
