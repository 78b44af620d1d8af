"""Tells by rule, without a model, that a question is short and plainly a single one."""

import re

from services.agent.language import HAN

_MAX_WORDS = 16
_MAX_HAN = 32

_HAN_CHARACTER = re.compile(f"[{HAN}]")
_WORD = re.compile(r"[A-Za-z0-9][\w.'’-]*")
# Anything that can join, oppose or list: whether it does is for a model to say.
_JOINS_ENGLISH = re.compile(
    r"\b(and|or|nor|but|vs|versus|both|either|neither|each|every|all|respectively|also|then|plus|than|between"
    r"|compar\w*|differ\w*|same|as well as|in addition)\b|&|/",
    re.IGNORECASE,
)
_JOINS_CHINESE = re.compile(
    r"和|与|跟|及|或|还|并|又|且|同时|另外|此外|然后|分别|各|每|都"
    r"|对比|比较|相比|区别|差异|不同|一样|比"
)
_SENTENCE_END = re.compile(r"[?？!！。;；\n]|\.(?=\s|$)")
_LISTING = re.compile(r"[,，、:：]")
_HINTS_AT_SEVERAL = (_SENTENCE_END, _LISTING, _JOINS_ENGLISH, _JOINS_CHINESE)


def plainly_single(question: str) -> bool:
    """True only where nothing in the question hints at a second one; False decides nothing."""
    text = question.strip()
    if not text or len(_HAN_CHARACTER.findall(text)) > _MAX_HAN or len(_WORD.findall(text)) > _MAX_WORDS:
        return False
    body = text.rstrip("?？!！。;；. ")
    return not any(pattern.search(body) for pattern in _HINTS_AT_SEVERAL)
