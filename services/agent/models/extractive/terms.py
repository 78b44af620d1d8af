"""Cuts text into the terms that are compared: English words by their stem, Chinese words as they are written."""

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import rjieba

from services.agent.language import HAN, has_han
from services.agent.models.extractive.stop_words import (
    CHINESE_FUNCTION_TAGS,
    CHINESE_STOP_WORDS,
    ENGLISH_STOP_WORDS,
)

_WORD = re.compile(rf"[^\W_{HAN}]+(?:[.\-'’][^\W_{HAN}]+)*")
_PIECE = re.compile(rf"[{HAN}]+|[^\W_{HAN}]+(?:[.\-'’][^\W_{HAN}]+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_OPENING = "\"'“("
_SENTENCE_END = ".!?:：。？！"
_NAME_TAGS = frozenset(("nr", "ns", "nt", "nz", "nrt"))
_NEVER_JOINED = frozenset(("u", "uj", "ul", "ud", "uv", "uz", "ug", "p", "c", "r", "d", "y", "e", "x"))
# Forms that no ending tells, of verbs that documents about anything use.
_IRREGULAR = {
    "kept": "keep", "sent": "send", "held": "hold", "lost": "lose", "paid": "pay", "bought": "buy", "sold": "sell",
    "built": "build", "left": "leave", "began": "begin", "begun": "begin", "broke": "break", "broken": "break",
    "chose": "choose", "chosen": "choose", "wrote": "write", "written": "write", "took": "take", "taken": "take",
    "gave": "give", "given": "give", "meant": "mean", "spent": "spend", "drew": "draw", "drawn": "draw",
    "shown": "show", "ran": "run", "fell": "fall", "fallen": "fall", "rose": "rise", "risen": "rise",
    "brought": "bring", "taught": "teach", "caught": "catch", "met": "meet", "fed": "feed", "led": "lead",
}  # fmt: skip
# Written with a capital letter, and names of nothing that a document is about.
_CALENDAR = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august "
    "september october november december".split()
)
_VOWEL = re.compile(r"[aeiouy]")


class TermKind(Enum):
    WORD = "word"
    NAME = "name"
    """A proper name as far as its spelling or its word class tells."""
    NUMBER = "number"
    """Anything with a digit: a number, a version, a model."""


@dataclass(frozen=True, slots=True)
class Term:
    """`form` is what is compared, `surface` what was written."""

    form: str
    surface: str
    kind: TermKind

    @property
    def is_specific(self) -> bool:
        return self.kind is not TermKind.WORD


def fold(text: str) -> str:
    """The text in lower case, full-width and compatibility characters made plain, no commas within numbers."""
    return _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())


@lru_cache(maxsize=32_768)
def stem(word: str) -> str:
    """An English word without its commonest endings; a word with digits or beyond ASCII stays as it is."""
    if not word.isascii() or not word.isalpha() or len(word) < 4:
        return _IRREGULAR.get(word, word)
    word = _IRREGULAR.get(word, word)
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed", "ly"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= 3 and _VOWEL.search(root):
            word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
            break
    if word.endswith("e") and len(word) > 4:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


@lru_cache(maxsize=32_768)
def word_forms(word: str) -> tuple[str, ...]:
    """What a written word is found by: itself and, where a hyphen joins plain words, each of them."""
    word = word.removesuffix("'s").removesuffix("’s").strip(".-'’")
    if any(character.isdigit() for character in word):
        return (word,)
    parts = tuple(stem(part) for part in re.split(r"[\-.'’]", word) if part)
    return (stem(word), *parts) if len(parts) > 1 else parts


def stems_of(folded: str) -> frozenset[str]:
    """The stems of all words of a folded text that are not Chinese."""
    return frozenset(form for word in _WORD.findall(folded) for form in word_forms(word))


def terms_of(text: str) -> list[Term]:
    """The content terms of a question, a heading or a sentence, in order, without repeats.

    Words of grammar and of asking are left out; single Han characters too, unless nothing else is left.
    """
    found: dict[str, Term] = {}
    singles: dict[str, Term] = {}
    plain = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text))
    for piece in _PIECE.finditer(plain):
        if has_han(piece.group()):
            for term in _chinese(piece.group()):
                (found if len(term.form) > 1 else singles).setdefault(term.form, term)
        elif (other := _other(piece.group(), plain, piece.start())) is not None:
            found.setdefault(other.form, other)
    return list((found or singles).values())


def _chinese(run: str) -> list[Term]:
    """The words of a run of Han characters.

    A word that the dictionary lacks falls into single characters: those that stand together are one term.
    Guessing such words instead (rjieba's HMM) joins them to words of grammar beside them.
    """
    terms: list[Term] = []
    singles: list[tuple[str, str]] = []

    def join() -> None:
        if any(tag not in CHINESE_FUNCTION_TAGS for _, tag in singles):
            word = "".join(character for character, _ in singles)
            kind = TermKind.NAME if any(tag in _NAME_TAGS for _, tag in singles) else TermKind.WORD
            terms.append(Term(word, word, kind))
        singles.clear()

    for word, tag in rjieba.tag(run, False):
        if len(word) == 1 and word not in CHINESE_STOP_WORDS and tag not in _NEVER_JOINED:
            singles.append((word, tag))
            continue
        join()
        if word not in CHINESE_STOP_WORDS and tag not in CHINESE_FUNCTION_TAGS:
            terms.append(Term(word, word, TermKind.NAME if tag in _NAME_TAGS else TermKind.WORD))
    join()
    return terms


def _other(written: str, text: str, place: int) -> Term | None:
    word = written.removesuffix("'s").removesuffix("’s")
    lowered = word.casefold()
    if lowered in ENGLISH_STOP_WORDS:
        return None
    if any(character.isdigit() for character in word):
        return Term(lowered, word, TermKind.NUMBER)
    if len(word) == 1:
        return None
    if lowered.removesuffix("s") in _CALENDAR:
        return Term(stem(lowered), word, TermKind.WORD)
    is_name = word[0].isupper() and (word[1:].lower() != word[1:] or not _begins_sentence(text, place))
    return Term(stem(lowered), word, TermKind.NAME if is_name else TermKind.WORD)


def _begins_sentence(text: str, place: int) -> bool:
    # By hand: a pattern that is anchored at its end alone is tried from every character of the text before it.
    while place and text[place - 1] in _OPENING:
        place -= 1
    word_end = place
    while word_end and text[word_end - 1].isspace():
        word_end -= 1
    return word_end == 0 or text[word_end - 1] in _SENTENCE_END or "\n" in text[word_end:place]


def load_dictionary() -> None:
    """Reads the Chinese dictionary, about 0.2 s once a process; whoever comes first pays otherwise."""
    rjieba.tag("词典")
