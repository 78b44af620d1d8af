"""What a reading process and its owner tell each other: JSON behind its length, and nothing that could run."""

import json
import struct
from typing import Any, BinaryIO, Final

_LENGTH: Final = struct.Struct(">I")


class FrameTooLarge(Exception):
    """The other side would send more than it may; what it sends next is not to be read."""


def write_frame(stream: BinaryIO, value: Any) -> None:
    # A lone surrogate, which a file may hold, is no text.
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    stream.write(_LENGTH.pack(len(encoded)))
    stream.write(encoded)
    stream.flush()


def read_frame(stream: BinaryIO, *, limit: int) -> tuple[Any, int]:
    """The next value, and its size; raises EOFError where the other side is gone, ValueError for no JSON."""
    (length,) = _LENGTH.unpack(read_exactly(stream, _LENGTH.size))
    if length > limit:
        raise FrameTooLarge
    try:
        return json.loads(read_exactly(stream, length)), length
    except RecursionError:
        raise ValueError from None


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
