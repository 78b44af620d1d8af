"""What a text may hold to be told and stored, and how long it may be; storage and the API hold the same limits."""

from typing import Final

MAX_TEXT_BYTES: Final = 32_768
"""Of a message, a question, a prompt, an answer."""
MAX_OPTIONS: Final = 20
MAX_OPTION_BYTES: Final = 1_024
MAX_ANSWERS: Final = 100


def clean(text: str) -> str:
    """Without NUL, which PostgreSQL refuses, and lone surrogates, which protobuf refuses; a model may write both."""
    return text.replace("\0", "").encode(errors="ignore").decode()


def cut(text: str, *, at_most: int) -> str:
    """The beginning of a clean text, of at most so many UTF-8 bytes, cut between characters."""
    if len(text) * 4 <= at_most:
        return text
    return text.encode()[:at_most].decode(errors="ignore")
