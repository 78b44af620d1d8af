"""Text of others, made safe for a terminal."""

import re

# Control characters could move the cursor, hide text or talk to the terminal; line ends and tabs may stay.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text without control characters other than line ends and tabs."""
    return _CONTROL.sub("", text)
