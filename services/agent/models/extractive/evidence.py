"""Weighs every sentence of the evidence by how much of the question it covers.

A term counts by how rare it is among the sentences: one that stands in every sentence tells nothing apart. A
name, a number or a version counts half as much again, since a passage about another one is about another
thing. A term that the evidence lacks counts as the rarest there is.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

from services.agent.models.extractive.asking import Asking, asking_of, holds_answer
from services.agent.models.extractive.language import Language, has_han, language_of
from services.agent.models.extractive.sentences import Sentence, sentences_of
from services.agent.models.extractive.terms import Term, fold, stem, stems_of, terms_of
from services.agent.schemas import RetrievedChunk

# What a term counts for, by where it is found. A section's heading says what its sentences are about, so it
# counts nearly as the sentence; a document's title says it from further off; a neighbour may be about another.
_IN_SENTENCE = 1.0
_IN_HEADING = 0.95
_IN_TITLE = 0.7
_IN_NEIGHBOUR = 0.35
# A word of the same stem or root ("recorder", "recording"), or a Chinese word found in part.
_AKIN = 0.7

_SPECIFIC_WEIGHT = 1.5

# What puts sentences in order beyond what they cover: a heading about the question, an answer of the kind
# that is asked for, a name found elsewhere in the document, how much of the sentence is about the question,
# being the first of its section (the general comes before the special), the place in the retrieval. Each is small
# enough that one more term covered outweighs it.
_HEADING_BONUS = 0.10
_KIND_BONUS = 0.12
_DOCUMENT_BONUS = 0.10
_RANK_BONUS = 0.03
_FOCUS_BONUS = 0.05
_LEAD_BONUS = 0.06
_ROW_PENALTY = 0.05
# A sentence that asks answers nothing, however much of the question it repeats.
_QUESTION_PENALTY = 0.5
# A question that names one document's subject is not answered by a sentence about another's.
_OTHER_SUBJECT = 0.8


@dataclass(frozen=True, slots=True)
class Passage:
    """One sentence of the evidence, weighed.

    `chunk` is the index of the first chunk that holds it. `coverage` is the share of the question's weight
    that the sentence and its headings cover; `fits` says whether it holds an answer of the kind that is asked
    for. `aspect` is the share of what is asked about the question's subject: of the terms that are no names.
    `near` are the terms that it covers without the help of its document's title.
    """

    sentence: Sentence
    chunk: int
    order: int
    filename: str
    title: str
    coverage: float
    score: float
    fits: bool
    aspect: float
    near: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A question and the passages for it, best first."""

    question: str
    language: Language
    asking: Asking
    terms: list[Term]
    weights: dict[str, float]
    passages: list[Passage]
    absent: frozenset[str]
    """The terms that no passage has, by their form."""
    specific: frozenset[str]
    """The terms that name something: names, numbers, and what tells one document's title from another's."""

    @property
    def coverage(self) -> float:
        return self.passages[0].coverage if self.passages else 0.0


def weigh(question: str, chunks: Sequence[RetrievedChunk]) -> Evidence:
    """The evidence in the question's own language where that has anything to say, otherwise all of it.

    Documents often exist in both languages; a twin in the other one is no second opinion.
    """
    language = language_of(question)
    own = [index for index, chunk in enumerate(chunks) if language_of(chunk.text) is language]
    evidence = _weigh(question, chunks, own)
    if len(own) == len(chunks) or evidence.coverage >= 0.5:
        return evidence
    everything = _weigh(question, chunks, range(len(chunks)))
    return everything if everything.coverage > evidence.coverage else evidence


@dataclass(slots=True)
class _Found:
    sentence: Sentence
    chunk: int
    order: int
    position: int


def _weigh(question: str, chunks: Sequence[RetrievedChunk], indices: Iterable[int]) -> Evidence:
    terms = terms_of(question)
    asking = asking_of(question)
    found = _sentences(chunks, indices)
    titles = _titles(chunks, found)
    vocabulary = frozenset().union(*(item.sentence.words for item in found))
    matchers = {term.form: _Matcher(term, vocabulary) for term in terms}
    weights = _weights(terms, matchers, found)
    total = sum(weights.values()) or 1.0

    held: list[dict[str, float]] = [
        {form: credit for form, matcher in matchers.items() if (credit := matcher.credit(item.sentence)) > 0}
        for item in found
    ]
    outlines: dict[str, dict[str, float]] = {}

    def in_outline(outline: str) -> dict[str, float]:
        if outline not in outlines:
            folded = fold(outline)
            words = stems_of(folded)
            outlines[outline] = {form: matcher.credit_of(folded, words) for form, matcher in matchers.items()}
        return outlines[outline]

    by_file: dict[str, set[str]] = {}
    for item, own in zip(found, held, strict=True):
        by_file.setdefault(chunks[item.chunk].filename, set()).update(own)

    in_title = {
        filename: {form for form, credit in in_outline(title).items() if credit == 1.0}
        for filename, title in titles.items()
    }
    named_by_title: list[set[str]] = list(in_title.values())
    subjects = {form for form in weights if 0 < sum(form in named for named in named_by_title) < len(named_by_title)}
    most_named = max((len(named & subjects) for named in in_title.values()), default=0)
    written_as_names = {term.form for term in terms if term.is_specific} | _joined_to_names(question, terms, found)
    specific = frozenset(form for form in weights if form in subjects or form in written_as_names)
    plain = weights.keys() - specific
    aspect_total = sum(weights[form] for form in plain)
    leads = _leads(chunks, found)
    passages: list[Passage] = []
    present: set[str] = set()
    for place, (item, own) in enumerate(zip(found, held, strict=True)):
        filename = chunks[item.chunk].filename
        # A document's title says less about a sentence than the heading of its section, even where it is the nearest.
        is_titled = len(item.sentence.headings) == 1 and titles[filename].startswith(item.sentence.headings[0])
        nearest = in_outline(item.sentence.headings[-1]) if item.sentence.headings and not is_titled else {}
        outer = in_outline(" / ".join((titles[filename], *item.sentence.headings[:-1])))
        beside = [held[other] for other in (place - 1, place + 1) if _is_beside(found, place, other)]
        near = frozenset({*own, *(form for form in weights if nearest.get(form, 0.0) > 0)})
        covered = heading_share = aspect = 0.0
        for form, weight in weights.items():
            credit = max(
                own.get(form, 0.0) * _IN_SENTENCE,
                nearest.get(form, 0.0) * _IN_HEADING,
                outer.get(form, 0.0) * _IN_TITLE,
                max((neighbour.get(form, 0.0) for neighbour in beside), default=0.0) * _IN_NEIGHBOUR,
            )
            covered += weight * credit
            if form in plain:
                aspect += weight * credit
            heading_share += weight * nearest.get(form, 0.0)
        coverage = covered / total
        if len(in_title[filename] & subjects) < most_named and len(near & subjects) < most_named:
            coverage *= _OTHER_SUBJECT
        if covered == 0:
            continue
        present |= near | {form for form in weights if outer.get(form, 0.0) > 0}
        fits = holds_answer(item.sentence.folded, asking)
        in_document = sum(weights[form] for form in by_file[filename] & weights.keys()) / total
        score = (
            coverage
            + _HEADING_BONUS * heading_share / total
            + _KIND_BONUS * fits
            + _DOCUMENT_BONUS * in_document
            + (_FOCUS_BONUS * _focus(item.sentence, own) if asking is not Asking.STEPS else 0.0)
            + _LEAD_BONUS * (place in leads)
            + _RANK_BONUS / (1 + item.chunk)
            - _ROW_PENALTY * item.sentence.is_row
            - _QUESTION_PENALTY * item.sentence.text.endswith(("?", "？"))
        )
        passages.append(
            Passage(
                sentence=item.sentence,
                chunk=item.chunk,
                order=item.order,
                filename=filename,
                title=titles[filename],
                coverage=coverage,
                score=score,
                fits=fits,
                aspect=aspect / aspect_total if aspect_total else 1.0,
                near=near,
            )
        )
    passages.sort(key=lambda passage: (-passage.score, passage.chunk, passage.order))
    return Evidence(
        question=question,
        language=language_of(question),
        asking=asking,
        terms=terms,
        weights=weights,
        passages=passages,
        absent=frozenset(weights) - present,
        specific=specific,
    )


class _Matcher:
    """Finds one term of the question in sentences, and says how well."""

    def __init__(self, term: Term, vocabulary: frozenset[str]) -> None:
        self._han = has_han(term.form)
        self._form = term.form
        self._pairs = [term.form[at : at + 2] for at in range(len(term.form) - 1)] if len(term.form) > 2 else []
        self._credits = {} if self._han else _alike(term.form, vocabulary)
        self._findable = self._credits.keys()

    def credit(self, sentence: Sentence) -> float:
        return self.credit_of(sentence.folded, sentence.words)

    def credit_of(self, folded: str, words: frozenset[str]) -> float:
        if not self._han:
            if self._form in words:
                return 1.0
            return max((self._credits[word] for word in self._findable & words), default=0.0)
        if self._form in folded:
            return 1.0
        if not self._pairs:
            return 0.0
        return _AKIN * sum(pair in folded for pair in self._pairs) / len(self._pairs)


def _focus(sentence: Sentence, held: Mapping[str, float]) -> float:
    """How much of a sentence is the question's terms: a short one that answers comes before a long one."""
    han = sum(len(form) for form in held if has_han(form))
    length = max(len(sentence.words), 1) + sum(1 for character in sentence.folded if character > "\u2e7f")
    return min(1.0, (han + sum(not has_han(form) for form in held)) / length)


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
            if word[:4] == form[:4] and word != form and abs(len(word) - len(form)) <= 3 and word.isalpha():
                shorter, longer = sorted((form, word), key=len)
                if longer.startswith(shorter):
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


def _weights(terms: list[Term], matchers: dict[str, _Matcher], found: list[_Found]) -> dict[str, float]:
    weights = {}
    for term in terms:
        holding = sum(matchers[term.form].credit(item.sentence) > 0.5 for item in found)
        rarity = math.log(2 + len(found) / max(1, holding))
        # A Chinese compound of four characters is two words, and would be two terms in English.
        words = max(1, len(term.form) // 2) if has_han(term.form) else 1
        weights[term.form] = rarity * words * (_SPECIFIC_WEIGHT if term.is_specific else 1.0)
    return weights


def _sentences(chunks: Sequence[RetrievedChunk], indices: Iterable[int]) -> list[_Found]:
    """Every sentence once, with the headings of whichever chunk shows most of them."""
    found: dict[tuple[str, str], _Found] = {}
    for index in indices:
        chunk = chunks[index]
        for position, sentence in enumerate(sentences_of(chunk.text)):
            key = (chunk.filename, sentence.text)
            known = found.get(key)
            if known is None:
                found[key] = _Found(sentence, index, len(found), position)
            elif len(sentence.headings) > len(known.sentence.headings):
                known.sentence = sentence
    return list(found.values())


def _titles(chunks: Sequence[RetrievedChunk], found: list[_Found]) -> dict[str, str]:
    """What each document calls itself: its outermost heading where a chunk shows it, and its file's name."""
    titles: dict[str, str] = {}
    for item in found:
        filename = chunks[item.chunk].filename
        if filename not in titles:
            titles[filename] = named_by_file(filename)
        if item.sentence.headings and len(item.sentence.headings) > 1 and "\n" not in titles[filename]:
            titles[filename] = f"{item.sentence.headings[0]}\n{named_by_file(filename)}"
    return titles


def named_by_file(filename: str) -> str:
    """The words of a file's name, without folders and endings."""
    return PurePosixPath(filename.replace("\\", "/")).name.split(".")[0].replace("-", " ").replace("_", " ")


def _joined_to_names(question: str, terms: list[Term], found: list[_Found]) -> set[str]:
    """The Chinese words that are one name with the name beside them, in the question and in the evidence alike."""
    asked = fold(question)
    joined: set[str] = set()
    for left, right in pairwise(terms):
        pair = left.form + right.form
        if (left.is_specific or right.is_specific) and has_han(left.form) and has_han(right.form) and pair in asked:
            if any(pair in item.sentence.folded for item in found):
                joined |= {left.form, right.form}
    return joined


def _leads(chunks: Sequence[RetrievedChunk], found: list[_Found]) -> set[int]:
    """The places of the sentences that open a section."""
    first: dict[tuple[str, tuple[str, ...]], int] = {}
    for place, item in enumerate(found):
        if item.sentence.headings:
            first.setdefault((chunks[item.chunk].filename, item.sentence.headings), place)
    return set(first.values())


def _is_beside(found: list[_Found], place: int, other: int) -> bool:
    if not 0 <= other < len(found):
        return False
    here, there = found[place], found[other]
    return here.chunk == there.chunk and here.sentence.paragraph == there.sentence.paragraph
