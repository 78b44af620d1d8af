"""What a session is called: the opening words of its first question."""

import re

_MAX_HAN = 16
_MAX_OTHER = 48
_HAN = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]+")
_WORD = re.compile(r"\s*(?:[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]+)")
_EDGES = " \t\n,，.。;；:：、?？!！…-—~～\"'“”‘’()（）[]【】<>《》*#`_/\\|"
_UNTITLED = "…"


def session_title(question: str) -> str:
    """At most 16 Han or 48 other characters, cut between words, without punctuation at the ends; never empty.

    A Han character takes as much room as three others.
    """
    text = " ".join(_UNSEEN.sub(" ", question).split()).strip(_EDGES)
    room = _MAX_OTHER
    title = ""
    for word in _WORD.findall(text):
        room -= sum(_MAX_OTHER // _MAX_HAN if _HAN.match(character) else 1 for character in word)
        if room < 0:
            break
        title += word
    return title.strip(_EDGES) or text[:_MAX_HAN] or " ".join(question.split())[:_MAX_HAN] or _UNTITLED
