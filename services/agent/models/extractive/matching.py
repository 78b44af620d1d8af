"""Finds the terms of a question in sentences, and says how well: as written, or by a word akin to it."""

import re
from collections.abc import Iterable

from services.agent.language import has_han
from services.agent.models.extractive.sentences import Sentence
from services.agent.models.extractive.terms import Term, fold, stem, stems_of

# What a word of the same stem or root counts for ("recorder", "recording"), or a Chinese word found in part.
_AKIN = 0.7
_LEAST_PART = 5
_MAX_DIGITS = 9
_RANGE = re.compile(r"(?<![\d.])(\d{1,9})\s?(?:to|至|到|~|-|–|—)\s?(\d{1,9})(?![\d.])")
# What an adjective and the noun made of it end in, by their stems: "accurate" and "accuracy".
_DERIVED = (frozenset(("t", "ci")), frozenset(("nt", "nc")), frozenset(("nt", "nci")), frozenset(("bl", "biliti")))


class TermMatcher:
    """Finds one term. `vocabulary` are the stems of all the evidence, so that they are compared but once.

    `aliases` are the forms of other names for the same, and count as the term itself.
    """

    def __init__(self, term: Term, vocabulary: frozenset[str], *, aliases: Iterable[str] = ()) -> None:
        self._aliases = frozenset(aliases)
        self._number = int(term.form) if term.form.isdecimal() and len(term.form) <= _MAX_DIGITS else None
        self._han = has_han(term.form)
        self._form = term.form
        self._pairs = [term.form[at : at + 2] for at in range(len(term.form) - 1)] if len(term.form) > 2 else []
        self._credits = {} if self._han else _alike(term.form, vocabulary)
        self._findable = self._credits.keys()

    def in_sentence(self, sentence: Sentence) -> float:
        """From 0 to 1, which is the term as it is written."""
        return self._in(sentence.folded, sentence.words)

    def in_line(self, line: str) -> float:
        """The same for a title or a heading."""
        folded = fold(line)
        return self._in(folded, stems_of(folded))

    def _in(self, folded: str, words: frozenset[str]) -> float:
        if any(alias in (folded if has_han(alias) else words) for alias in self._aliases):
            return 1.0
        if not self._han:
            if self._form in words:
                return 1.0
            if self._number is not None and _lies_within(self._number, folded):
                return _AKIN
            return max((self._credits[word] for word in self._findable & words), default=0.0)
        if self._form in folded:
            return 1.0
        if not self._pairs:
            return 0.0
        return _AKIN * sum(pair in folded for pair in self._pairs) / len(self._pairs)


def _lies_within(number: int, folded: str) -> bool:
    """Whether a range in the text holds the number: 400 lies within "300 to 2000"."""
    return any(int(low) < number < int(high) for low, high in _RANGE.findall(folded))


def _alike(form: str, vocabulary: frozenset[str]) -> dict[str, float]:
    """The words of the evidence that a term may be found by, and what each counts for."""
    if any(character.isdigit() for character in form):
        likeness = {word: _version_likeness(form, word) for word in vocabulary if word[-1].isdigit() or word[-1] == "x"}
        return {word: credit for word, credit in likeness.items() if credit > 0}
    found = {stem(part): _AKIN for part in form.split("-") if part} if "-" in form else {}
    # "IP" is in "IP67".
    found |= {word: _AKIN for word in vocabulary if word.startswith(form) and word[len(form) :].isdigit()}
    if len(form) >= 4:
        for word in vocabulary:
            if word[:4] != form[:4] or word == form or not word.isalpha():
                continue
            shorter, longer = sorted((form, word), key=len)
            # "waterproof" is found by "water": a compound by its first part.
            is_compound = word is shorter and len(word) >= _LEAST_PART
            if abs(len(word) - len(form)) <= 3 or is_compound:
                if longer.startswith(shorter) or _is_derived(form, word):
                    found[word] = _AKIN
    return {word: credit for word, credit in found.items() if word in vocabulary}


def _version_likeness(asked: str, written: str) -> float:
    """4.2 is one of 4.x, and v3 is 3."""
    asked, written = asked.removeprefix("v"), written.removeprefix("v")
    if asked == written:
        return 1.0
    family = written.removesuffix(".x")
    if written.endswith(".x") and asked.startswith(family + "."):
        return _AKIN
    return _AKIN if asked.endswith(".x") and written.startswith(asked.removesuffix("x")) else 0.0


def _is_derived(one: str, other: str) -> bool:
    shared = next((at for at, (ours, theirs) in enumerate(zip(one, other, strict=False)) if ours != theirs), 0)
    return any({one[at:], other[at:]} in _DERIVED for at in (shared, shared - 1) if at >= 4)
