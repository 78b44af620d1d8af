"""Reads what a user answers to a question back."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from services.agent.language import HAN
from services.agent.texts import MAX_TEXT_BYTES, cut

_WORD = rf"[^\W_{HAN}]+"
_TERM = re.compile(rf"[{HAN}]+|{_WORD}(?:[._-]{_WORD})*")
_NUMBER = re.compile(
    r"(?:#|no\.?|number|option|选项|选|第)?\s*(\d{1,2}|[一二三四五六七八九十])\s*(?:[.)）。、]|个|项|号|种)?",
    re.IGNORECASE,
)
_CHINESE_DIGITS = "一二三四五六七八九十"
# What has more words names nothing.
_MAX_TERMS = 100
_MARK = "："
_IN_WORDS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_WORD_GOES_ON = re.compile(r"[a-z0-9]|\.\d")


def chosen(answer: str, options: Sequence[str]) -> str:
    """The option that an answer stands for, by its text, its beginning or its number; else the answer itself."""
    said = " ".join(answer.split())
    folded = said.casefold()
    if not folded:
        return said
    for option in options:
        if option.strip().casefold() == folded:
            return option
    beginning = [option for option in options if _begins_with(option.strip().casefold(), folded)]
    if len(beginning) == 1:
        return beginning[0]
    if number := _NUMBER.fullmatch(said):
        place = _CHINESE_DIGITS.find(number[1]) + 1 or int(number[1])
        if 1 <= place <= len(options):
            return options[place - 1]
    return said


def refined_question(question: str, answer: str) -> str:
    """The question with the answer before it, or alone where it holds the answer already; MAX_TEXT_BYTES at most.

    Where both are too long together, the longer one loses its end, down to the length of the other.
    """
    if not answer or mentions(question, answer):
        return cut(question, at_most=MAX_TEXT_BYTES)
    room = MAX_TEXT_BYTES - len(_MARK.encode())
    answer = cut(answer, at_most=max(room // 2, room - len(question.encode())))
    return f"{answer}{_MARK}{cut(question, at_most=room - len(answer.encode()))}"


def mentions(text: str, wanted: str) -> bool:
    """Whether every word of `wanted` stands in the text as a word, and every run of Chinese as it is."""
    wanted, text = wanted.casefold(), text.casefold()
    terms = list(islice(map(re.Match.group, _TERM.finditer(wanted)), _MAX_TERMS + 1))
    if len(terms) > _MAX_TERMS:
        return wanted in text
    return bool(terms) and all(_stands_in(text, term) for term in dict.fromkeys(terms))


def _stands_in(text: str, term: str) -> bool:
    if not term[0].isascii():
        return term in text
    return any(
        text[place - 1 : place] not in _IN_WORDS and not _WORD_GOES_ON.match(text, place + len(term))
        for place in _places(text, term)
    )


def _places(text: str, term: str) -> Iterator[int]:
    place = text.find(term)
    while place >= 0:
        yield place
        place = text.find(term, place + 1)


def _begins_with(option: str, said: str) -> bool:
    """A number is a beginning only where it stands for itself: "1" does not begin "10 m"."""
    rest = option[len(said) :]
    return option.startswith(said) and not (said[-1].isdigit() and rest[:1].isdigit())
