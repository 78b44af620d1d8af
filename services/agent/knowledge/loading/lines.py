"""A text's lines, each between its neighbours."""

from collections.abc import Iterator


def lines_between(text: str) -> Iterator[tuple[str | None, str, str | None]]:
    """Each line with the one before and the one after it, None at the ends; never all of them at once."""
    before: str | None = None
    lines = _lines(text)
    line = next(lines)
    for after in lines:
        yield before, line, after
        before, line = line, after
    yield before, line, None


def _lines(text: str) -> Iterator[str]:
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]
