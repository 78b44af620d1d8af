"""What a session is called: the opening words of its first question."""

import re

from services.agent.language import WIDE

_MAX_WIDE = 16
_MAX_OTHER = 48
_WIDE_CHARACTER = re.compile(f"[{WIDE}]")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]+")
_WORD = re.compile(rf"\s*(?:[{WIDE}]|[^\s{WIDE}]+)")
_EDGES = " \t\n,，.。;；:：、?？!！…-—~～\"'“”‘’()（）[]【】<>《》*#`_/\\|"
_UNTITLED = "…"


def session_title(question: str) -> str:
    """At most 16 wide or 48 other characters, cut between words, without punctuation at the ends; never empty.

    A wide character, such as a Han one, takes as much room as three others.
    """
    text = " ".join(_UNSEEN.sub(" ", question).split()).strip(_EDGES)
    room = _MAX_OTHER
    title = ""
    for word in _WORD.findall(text):
        room -= sum(_MAX_OTHER // _MAX_WIDE if _WIDE_CHARACTER.match(character) else 1 for character in word)
        if room < 0:
            break
        title += word
    return title.strip(_EDGES) or text[:_MAX_WIDE] or " ".join(question.split())[:_MAX_WIDE] or _UNTITLED
