"""Search terms of a text: Chinese words by jieba in search mode, other words lowercased and lightly stemmed."""

import re
import unicodedata
from typing import Final

import rjieba

from services.agent.language import HAN

_TOKEN: Final = re.compile(
    rf"(?P<han>[{HAN}]+)|(?P<word>[^\W_{HAN}]+(?:[.\-_'’/][^\W_{HAN}]+)*)",
)
_PARTS: Final = re.compile(r"[.\-_'’/]")
_HAN_CHARACTER: Final = re.compile(f"[{HAN}]")
_MAX_TERM_CHARACTERS: Final = 64
_VOWELS: Final = frozenset("aeiouy")

# What questions are made of, and documents answer without: left out of queries, never out of the index.
_QUESTION_WORDS: Final = frozenset(
    "a an and are as at be by can could did do does for from had has have how i if in is it its me my of on or "
    "our shall should that the their then there these they this those to was we were what when where which who "
    "whom whose why will with would you your please tell about much many long "
    "的 了 是 在 和 与 或 及 也 都 就 而 吗 呢 吧 啊 么 我 我们 你 你们 您 他 它 这 那 这个 那个 哪 哪个 哪些 什么 "
    "怎么 怎样 如何 为什么 为何 多少 多久 多长 几 谁 请 请问 有 要 会 能 可以 被 把 对 从 到 给 让 用 "
    "之 其 个 些".split()
)


def index_terms(text: str) -> list[str]:
    """The text's terms in order, repeated as often as they stand there."""
    terms: list[str] = []
    for found in _TOKEN.finditer(unicodedata.normalize("NFKC", text).lower()):
        if found.lastgroup == "han":
            terms.extend(word[:_MAX_TERM_CHARACTERS] for word in rjieba.cut_for_search(found.group()))
        else:
            terms.extend(_word_terms(found.group()))
    return terms


def query_terms(text: str) -> list[str]:
    """The distinct terms that a question is searched by, in order; empty where it holds none of its own."""
    return list(dict.fromkeys(term for term in index_terms(text) if term not in _QUESTION_STEMS))


def is_chinese(text: str) -> bool:
    """Whether Chinese characters weigh as much in the text as a tenth of it."""
    return len(_HAN_CHARACTER.findall(text)) * 10 >= len(text) > 0


def _word_terms(word: str) -> list[str]:
    """The word; one that is put together ("ultra-low", "E-17", "3.x") also by those of its parts that are words."""
    word = word[:_MAX_TERM_CHARACTERS]
    for ending in ("'s", "’s"):
        word = word.removesuffix(ending)
    parts = _PARTS.split(word)
    if len(parts) == 1:
        return [_stem(word)]
    return [word, *(_stem(part) for part in parts if len(part) > 1)]


def _stem(word: str) -> str:
    """Takes plurals, -ed, -ing and a silent e off English words; both sides of a search go through it."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3 and not _VOWELS.isdisjoint(stem):
            word = stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


_QUESTION_STEMS: Final = _QUESTION_WORDS | {_stem(word) for word in _QUESTION_WORDS}
