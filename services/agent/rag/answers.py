"""Reads what a user answers to a question back."""

import re
from collections.abc import Sequence

from services.agent.language import HAN

_WORD = rf"[^\W_{HAN}]+"
_TERM = re.compile(rf"[{HAN}]+|{_WORD}(?:[._-]{_WORD})*")
_NUMBER = re.compile(
    r"(?:#|no\.?|number|option|选项|选|第)?\s*(\d{1,2}|[一二三四五六七八九十])\s*(?:[.)）。、]|个|项|号|种)?",
    re.IGNORECASE,
)
_CHINESE_DIGITS = "一二三四五六七八九十"


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
    """The question with the answer before it, or alone where it holds the answer already."""
    if not answer or mentions(question, answer):
        return question
    return f"{answer}：{question}"


def mentions(text: str, wanted: str) -> bool:
    """Whether every word of `wanted` stands in the text as a word, and every run of Chinese as it is."""
    terms = _TERM.findall(wanted.casefold())
    text = text.casefold()
    return bool(terms) and all(_stands_in(text, term) for term in terms)


def _stands_in(text: str, term: str) -> bool:
    if not term[0].isascii():
        return term in text
    return re.search(rf"(?<![a-z0-9]){re.escape(term)}(?![a-z0-9]|\.\d)", text) is not None


def _begins_with(option: str, said: str) -> bool:
    """A number is a beginning only where it stands for itself: "1" does not begin "10 m"."""
    rest = option[len(said) :]
    return option.startswith(said) and not (said[-1].isdigit() and rest[:1].isdigit())
