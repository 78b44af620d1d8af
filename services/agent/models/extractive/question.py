"""Reads a question: its terms, what each is there for, and what kind of answer is wanted."""

import re
from dataclasses import dataclass

from services.agent.models.extractive.asking import Asking, asking_of
from services.agent.models.extractive.stop_words import CHINESE_LIGHT_WORDS, ENGLISH_LIGHT_WORDS
from services.agent.models.extractive.terms import Term, terms_of

# Stands between the answer to a question back and the question that it was asked about.
ANSWER_MARK = "："
# A longer question is judged by its first terms: what each costs grows with the evidence.
_MAX_TERMS = 100
# Where its asking part begins is looked for within what a person may say first.
_MAX_ACCOUNT = 500

_ASKING_WORD = (
    r"(?:how|what|when|where|which|who|whom|whose|why|can|could|does|do|did|is|are|was|were|will|should|may|must)"
)
_ASKED_LAST = re.compile(rf"(?:[.!;]\s+|,\s*)(?:and\s+|but\s+|so\s+)?(?={_ASKING_WORD}\b)", re.IGNORECASE)
_ASKS_FIRST = re.compile(rf"\s*(?:and\s+|but\s+)?{_ASKING_WORD}\b", re.IGNORECASE)
# Who asks: "…, as a consumer?"
_ROLE = re.compile(r",?\s+as (?:an?|the) [^,.?!;:]{1,40}[?.!]*\s*$", re.IGNORECASE)
# When that holds which is asked: "Can it be charged when it is cold?"
_YES_NO = re.compile(r"\s*(?:can|may|must|should|does|do|is|are|will)\b", re.IGNORECASE)
_CONDITION = re.compile(r"\s(?:when|while|if)\s", re.IGNORECASE)
_CHINESE_ASKED_LAST = re.compile(r"[。！；，,]")
_CHINESE_ASKING = re.compile(r"什么|怎么|怎样|如何|多少|多久|多长|几|哪|谁|吗|是否|能不能|可以|为何|何时")


@dataclass(frozen=True, slots=True)
class Question:
    """`light` are the terms that say what kind of answer is wanted rather than what it is about ("life",
    "period"), `circumstances` those of what is told before the question is put. Both by their form."""

    terms: list[Term]
    asking: Asking
    light: frozenset[str]
    circumstances: frozenset[str]
    answer: frozenset[str]
    """The terms of an answer that was put before its question ("Heron：…")."""


def read_question(text: str) -> Question:
    answer, text = _taken_apart(text)
    told, asked = _told_and_asked(text)
    terms = terms_of(f"{answer}{ANSWER_MARK}{text}" if answer else text)[:_MAX_TERMS]
    asked_terms = {term.form for term in terms_of(asked)}
    answer_terms = {term.form for term in terms_of(answer)}
    return Question(
        terms=terms,
        asking=asking_of(asked),
        light=frozenset(term.form for term in terms if _is_light(term)),
        circumstances=frozenset(term.form for term in terms_of(told)) - asked_terms - answer_terms,
        answer=frozenset(answer_terms),
    )


def without_answer(text: str) -> str:
    """The question alone, without the answer that was put before it."""
    return _taken_apart(text)[1]


def _taken_apart(text: str) -> tuple[str, str]:
    """An answer and its question. Where the answer is a question put in other words, that one is meant, alone."""
    answer, mark, question = text.partition(ANSWER_MARK)
    if not mark or not question.strip():
        return "", text
    if answer.rstrip().endswith(("?", "？")):
        return "", answer
    return answer, question


def _told_and_asked(text: str) -> tuple[str, str]:
    """What is told first and what is asked then: "I live in Spain, how long …?" is about how long."""
    if len(text) > _MAX_ACCOUNT:
        return "", text
    if role := _ROLE.search(text):
        told, asked = _told_and_asked(text[: role.start()])
        return f"{told} {role.group()}", asked
    if _YES_NO.match(text) and (condition := _CONDITION.search(text)) is not None:
        return text[condition.end() :], text[: condition.start()]
    if _ASKS_FIRST.match(text) is None and (begins := next(_ASKED_LAST.finditer(text), None)) is not None:
        return text[: begins.start()], text[begins.end() :]
    for mark in _CHINESE_ASKED_LAST.finditer(text):
        told, asked = text[: mark.start()], text[mark.end() :]
        if _CHINESE_ASKING.search(told):
            break
        if _CHINESE_ASKING.search(asked) and not _CHINESE_ASKED_LAST.search(asked.rstrip("。！；，,")):
            return told, asked
    return "", text


def _is_light(term: Term) -> bool:
    return term.form in ENGLISH_LIGHT_WORDS or term.form in CHINESE_LIGHT_WORDS
