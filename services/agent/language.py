"""Which of the two languages a text is in."""

import re
from enum import StrEnum

# As the inside of a character class.
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_HAN_CHARACTER = re.compile(f"[{HAN}]")
# Han, and what is as wide beside it: radicals, kana, full-width punctuation and letters.
WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U000323af"
_OTHER_WORD = re.compile(r"[^\W\d_]{2,}")


class Language(StrEnum):
    ENGLISH = "en"
    CHINESE = "zh"


def language_of(text: str) -> Language:
    """Chinese where Han characters are at least as many as the words beside them, English otherwise."""
    han = len(_HAN_CHARACTER.findall(text))
    words = len(_OTHER_WORD.findall(_HAN_CHARACTER.sub(" ", text)))
    return Language.CHINESE if han and han >= words else Language.ENGLISH


def has_han(text: str) -> bool:
    return _HAN_CHARACTER.search(text) is not None
