"""Weighs every sentence of the evidence by how much of the question it covers.

A term counts by how rare it is among the sentences: one that stands in every sentence tells nothing apart. A
name, a number or a version counts half as much again, since a passage about another one is about another
thing. A name that the evidence lacks counts as the rarest there is; a word that it lacks counts no more than the
rarest that it has, since what has those may put the other differently.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.agent.language import has_han, language_of
from services.agent.models.extractive.aliases import aliases_in
from services.agent.models.extractive.asking import Asking, holds_answer
from services.agent.models.extractive.evidence import Evidence, Passage, named_by_file
from services.agent.models.extractive.matching import TermMatcher
from services.agent.models.extractive.question import read_question
from services.agent.models.extractive.sentences import Sentence, sentences_of
from services.agent.models.extractive.terms import Term, TermKind, fold
from services.agent.schemas import RetrievedChunk

# What a term counts for, by where it is found. A section's heading says what its sentences are about, so it
# counts nearly as the sentence; a document's title says it from further off; a neighbour may be about another.
_IN_SENTENCE = 1.0
_IN_HEADING = 0.95
_IN_TITLE = 0.7
_IN_NEIGHBOUR = 0.35
_SPECIFIC_WEIGHT = 1.5

# What puts sentences in order beyond what they cover: a heading about the question, an answer of the kind
# that is asked for, a name found elsewhere in the document, how much of the sentence is about the question,
# being the first of its section (the general comes before the special), the place in the retrieval. Each is small
# enough that one more term covered outweighs it.
_HEADING_BONUS = 0.10
_KIND_BONUS = 0.12
_DOCUMENT_BONUS = 0.10
_RANK_BONUS = 0.03
_CIRCUMSTANCE_BONUS = 0.10
_FOCUS_BONUS = 0.05
_LEAD_BONUS = 0.06
_ROW_PENALTY = 0.05
# Where a name is all that is asked, the first words of its document say what it is.
_INTRODUCTION_BONUS = 0.3
# A sentence that asks answers nothing, however much of the question it repeats.
_QUESTION_PENALTY = 0.5
# Words that only say what kind of answer is wanted put sentences in order but should not decide.
_LIGHT_WEIGHT = 0.5
# A question that names one document's subject is not answered by a sentence about another's.
_OTHER_SUBJECT = 0.8


def weigh(question: str, chunks: Sequence[RetrievedChunk]) -> Evidence:
    """The evidence in the question's own language where that has anything to say, otherwise all of it.

    Documents often exist in both languages; a twin in the other one is no second opinion.
    """
    language = language_of(question)
    own = [index for index, chunk in enumerate(chunks) if language_of(chunk.text) is language]
    evidence = _Weighing(question, chunks, own).evidence()
    if len(own) == len(chunks) or evidence.coverage >= 0.5:
        return evidence
    everything = _Weighing(question, chunks, range(len(chunks))).evidence()
    return everything if everything.coverage > evidence.coverage else evidence


@dataclass(slots=True)
class _Found:
    sentence: Sentence
    chunk: int
    order: int
    filename: str


class _Weighing:
    """One question against some of the chunks. What a term is credited with, for a sentence or a heading, is
    kept by the term's form."""

    def __init__(self, question: str, chunks: Sequence[RetrievedChunk], indices: Sequence[int]) -> None:
        self._question = question
        self._asked = read_question(question)
        self._terms = self._asked.terms
        self._asking = self._asked.asking
        self._found = _sentences(chunks, indices)
        self._titles = _titles(self._found)
        vocabulary: frozenset[str] = frozenset().union(*(item.sentence.words for item in self._found))
        aliases = aliases_in(chunks[index].text for index in indices)
        self._matchers = {
            term.form: TermMatcher(term, vocabulary, aliases=aliases.get(term.form, ())) for term in self._terms
        }
        self._outlines: dict[str, dict[str, float]] = {}
        self._held = [self._in_sentence(item.sentence) for item in self._found]
        self._weights = self._weighted()
        self._total = sum(weight for form, weight in self._weights.items() if self._is_asked(form)) or 1.0
        self._by_title = {
            filename: {form for form, credit in self._in_line(title).items() if credit == 1.0}
            for filename, title in self._titles.items()
        }
        self._subjects = self._telling_apart()
        self._in_documents = self._by_document()
        self._answered = self._answer_in_front()
        # What names a section is said of that section; otherwise a document is meant that says it anywhere.
        self._is_answered_by_section = any(
            self._answered <= self._in_line(self._nearest(item)).keys() for item in self._found
        )
        joined = _joined_to_names(question, self._terms, self._found)
        names = joined | {term.form for term in self._terms if term.is_specific}
        self._specific = frozenset(form for form in self._weights if form in self._subjects or form in names)
        self._proper = self._proper_names(aliases) | joined
        self._plain = self._asked_about()
        if joined and not self._plain:
            # Nothing would be asked about: what passes for a name is a word that the dictionary takes for one.
            self._proper -= joined - aliases.keys()
            self._plain = self._asked_about()
        self._names = frozenset(term.form for term in self._terms if term.is_specific) - self._asked.circumstances
        # Only what says something of what is asked can be the place to look for it.
        telling = [name for name, held in self._in_documents.items() if held & self._plain or not self._plain]
        self._most_named = max((len(self._by_title[name] & self._subjects) for name in telling), default=0)
        self._most_proper = max((len(self._in_documents[name] & self._proper) for name in telling), default=0)

    def evidence(self) -> Evidence:
        leads = _leads(self._found)
        passages = []
        present: set[str] = set()
        for place, item in enumerate(self._found):
            outer = self._in_line(self._outer(item))
            passage = self._passage(place, outer, is_lead=place in leads)
            if passage is not None:
                passages.append(passage)
                present |= passage.near | outer.keys()
        passages.sort(key=lambda passage: (-passage.score, passage.chunk, passage.order))
        return Evidence(
            question=self._question,
            language=language_of(self._question),
            asking=self._asking,
            terms=self._terms,
            passages=passages,
            absent=frozenset(self._weights) - present,
            specific=self._specific,
            asks_for_name_alone=not self._plain,
            asks_kind_alone=bool(self._plain) and self._plain <= self._asked.light,
            has_one_word=len(self._plain) == 1,
            unknown_answer=bool(self._asked.answer - self._answered),
        )

    def _passage(self, place: int, outer: Mapping[str, float], *, is_lead: bool) -> Passage | None:
        """The sentence at this place, weighed; None where nothing of it has to do with the question."""
        item, own = self._found[place], self._held[place]
        nearest = self._in_line(self._nearest(item))
        beside = [self._held[other] for other in (place - 1, place + 1) if _is_beside(self._found, place, other)]
        credits = {
            form: max(
                own.get(form, 0.0) * _IN_SENTENCE,
                nearest.get(form, 0.0) * _IN_HEADING,
                outer.get(form, 0.0) * _IN_TITLE,
                max((neighbour.get(form, 0.0) for neighbour in beside), default=0.0) * _IN_NEIGHBOUR,
            )
            for form in self._weights
        }
        coverage = self._share(credits)
        if coverage == 0:
            return None
        near = frozenset({*own, *nearest})
        is_elsewhere = self._is_about_another(item, near)
        if is_elsewhere:
            coverage *= _OTHER_SUBJECT
        fits = holds_answer(item.sentence.folded, self._asking)
        has_focus = self._asking is not Asking.STEPS
        score = (
            coverage
            + _HEADING_BONUS * self._share(nearest)
            + _KIND_BONUS * fits
            + _DOCUMENT_BONUS * self._share(dict.fromkeys(self._in_documents[item.filename], 1.0))
            + _FOCUS_BONUS * (_focus(item.sentence, own) if has_focus else 0.0)
            + _CIRCUMSTANCE_BONUS * self._circumstances(near)
            + _LEAD_BONUS * is_lead
            + _RANK_BONUS / (1 + item.chunk)
            + _INTRODUCTION_BONUS * (is_lead and self._introduces(item))
            - _ROW_PENALTY * item.sentence.is_row
            - _QUESTION_PENALTY * item.sentence.text.endswith(("?", "？"))
        )
        return Passage(
            sentence=item.sentence,
            chunk=item.chunk,
            order=item.order,
            filename=item.filename,
            title=self._titles[item.filename],
            coverage=coverage,
            score=score,
            fits=fits,
            aspect=self._aspect(credits),
            near=near,
            lacks=self._names - near - outer.keys() - self._in_documents[item.filename],
            is_elsewhere=is_elsewhere,
            is_headed=not self._proper or bool(self._proper & (nearest.keys() | self._by_title[item.filename])),
        )

    def _introduces(self, item: _Found) -> bool:
        """Whether a name is all that is asked, and the sentence's section is named by it, or else its document."""
        if self._plain or item.sentence.is_row:
            return False
        nearest = self._nearest(item)
        if self._by_title[item.filename] or not nearest:
            return not nearest and bool(self._by_title[item.filename])
        return bool(self._in_line(nearest))

    def _is_about_another(self, item: _Found, near: frozenset[str]) -> bool:
        """Whether the question names a subject, and this passage is about another one."""
        at_hand = near | self._by_title[item.filename]
        if not self._answered <= (
            at_hand if self._is_answered_by_section else at_hand | self._in_documents[item.filename]
        ):
            return True
        if len((at_hand | self._in_documents[item.filename]) & self._proper) < self._most_proper:
            return True
        named = self._by_title[item.filename] & self._subjects
        return max(len(named), len(near & self._subjects)) < self._most_named

    def _share(self, credits: Mapping[str, float]) -> float:
        """How much of the weight of what is asked it is."""
        return sum(self._weights[form] * credits[form] for form in credits if self._is_asked(form)) / self._total

    def _is_asked(self, form: str) -> bool:
        return form not in self._asked.circumstances

    def _circumstances(self, near: frozenset[str]) -> float:
        """How much of what was told before the question a passage has."""
        told = self._asked.circumstances & self._weights.keys()
        total = sum(self._weights[form] for form in told)
        return sum(self._weights[form] for form in told & near) / total if total else 0.0

    def _aspect(self, credits: Mapping[str, float]) -> float:
        total = sum(self._weights[form] for form in self._plain)
        return sum(self._weights[form] * credits[form] for form in self._plain) / total if total else 1.0

    def _asked_about(self) -> set[str]:
        """The terms that say what is asked: no names of subjects; light words only where there is nothing else."""
        asked = self._weights.keys() - self._proper - self._asked.circumstances - self._asked.answer
        asked = {form for form in asked if self._weights[form] > 0}
        return (asked - self._asked.light) or asked

    def _proper_names(self, aliases: Mapping[str, object]) -> set[str]:
        """The names of subjects, and no abbreviation ("PIN"), which names a thing.

        A name that is asked for in lower case is known by how the evidence writes it.
        """
        proper = set()
        for term in self._terms:
            form = term.form
            if form in self._subjects and not term.is_specific and form not in aliases:
                written = re.compile(rf"[a-z,] {re.escape(term.surface.capitalize())}\b")
                if any(written.search(item.sentence.text) for item in self._found):
                    proper.add(form)
            elif form in aliases or (term.is_specific and not (term.kind is TermKind.NAME and term.surface.isupper())):
                proper.add(form)
        # What a title writes behind a name belongs to it: "the Heron series".
        for left, right in pairwise(self._terms):
            pair = f"{fold(left.surface)} {fold(right.surface)}"
            if left.form in proper and any(pair in fold(title) for title in self._titles.values()):
                proper.add(right.form)
        return proper

    def _in_sentence(self, sentence: Sentence) -> dict[str, float]:
        found = {form: matcher.in_sentence(sentence) for form, matcher in self._matchers.items()}
        return {form: credit for form, credit in found.items() if credit > 0}

    def _in_line(self, line: str) -> dict[str, float]:
        if line not in self._outlines:
            found = {form: matcher.in_line(line) for form, matcher in self._matchers.items()}
            self._outlines[line] = {form: credit for form, credit in found.items() if credit > 0}
        return self._outlines[line]

    def _nearest(self, item: _Found) -> str:
        """The heading of the sentence's section.

        A document's title says less about a sentence than that, even where it is the nearest, so it is none.
        """
        headings = item.sentence.headings
        is_title = len(headings) == 1 and self._titles[item.filename].startswith(headings[0])
        return headings[-1] if headings and not is_title else ""

    def _outer(self, item: _Found) -> str:
        return " / ".join((self._titles[item.filename], *item.sentence.headings[:-1]))

    def _weighted(self) -> dict[str, float]:
        rarest = math.log(2 + len(self._found))
        weights, missing = {}, []
        for term in self._terms:
            holding = sum(held.get(term.form, 0.0) > 0.5 for held in self._held)
            # A Chinese compound of four characters is two words, and would be two terms in English.
            words = max(1, len(term.form) // 2) if has_han(term.form) else 1
            if not holding and (term.form in self._asked.light or term.form in self._asked.circumstances):
                weights[term.form] = 0.0
            elif not holding and not term.is_specific:
                missing.append((term.form, words))
            else:
                rarity = math.log(2 + len(self._found) / max(1, holding))
                weights[term.form] = rarity * words * self._emphasis(term)
        present = [weights[term.form] for term in self._terms if weights.get(term.form) and not term.is_specific]
        for form, words in missing:
            weights[form] = min(max(present, default=rarest), rarest * words)
        return {term.form: weights[term.form] for term in self._terms}

    def _emphasis(self, term: Term) -> float:
        if term.is_specific:
            return _SPECIFIC_WEIGHT
        return _LIGHT_WEIGHT if term.form in self._asked.light else 1.0

    def _telling_apart(self) -> set[str]:
        """The terms that stand in the titles of some documents and not of others: they name a subject."""
        titles = list(self._by_title.values())
        return {form for form in self._weights if 0 < sum(form in title for title in titles) < len(titles)}

    def _by_document(self) -> dict[str, set[str]]:
        """The terms that each document's evidence has anywhere."""
        held: dict[str, set[str]] = {}
        for item, own in zip(self._found, self._held, strict=True):
            held.setdefault(item.filename, set()).update(own)
        return held

    def _answer_in_front(self) -> set[str]:
        """The terms of an answer that was put before its question ("Heron：…"), as far as the evidence has them."""
        present: set[str] = set().union(*self._in_documents.values(), *self._by_title.values())
        return set(self._asked.answer & present)


def _focus(sentence: Sentence, held: Mapping[str, float]) -> float:
    """How much of a sentence is the question's terms: a short one that answers comes before a long one."""
    han = sum(len(form) for form in held if has_han(form))
    length = max(len(sentence.words), 1) + sum(1 for character in sentence.folded if character > "\u2e7f")
    return min(1.0, (han + sum(not has_han(form) for form in held)) / length)


def _sentences(chunks: Sequence[RetrievedChunk], indices: Iterable[int]) -> list[_Found]:
    """Every sentence once, with the headings of whichever chunk shows most of them."""
    found: dict[tuple[str, str], _Found] = {}
    for index in indices:
        chunk = chunks[index]
        for sentence in sentences_of(chunk.text):
            key = (chunk.filename, sentence.text)
            known = found.get(key)
            if known is None:
                found[key] = _Found(sentence, index, len(found), chunk.filename)
            elif len(sentence.headings) > len(known.sentence.headings):
                known.sentence = sentence
    return list(found.values())


def _titles(found: list[_Found]) -> dict[str, str]:
    """What each document calls itself: its outermost heading where a chunk shows it, and its file's name."""
    titles: dict[str, str] = {}
    for item in found:
        filename = item.filename
        if filename not in titles:
            titles[filename] = named_by_file(filename)
        if item.sentence.headings and len(item.sentence.headings) > 1 and "\n" not in titles[filename]:
            titles[filename] = f"{item.sentence.headings[0]}\n{named_by_file(filename)}"
    return titles


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


def _leads(found: list[_Found]) -> set[int]:
    """The places of the sentences that open a section."""
    first: dict[tuple[str, tuple[str, ...]], int] = {}
    for place, item in enumerate(found):
        if item.sentence.headings:
            first.setdefault((item.filename, item.sentence.headings), place)
    return set(first.values())


def _is_beside(found: list[_Found], place: int, other: int) -> bool:
    if not 0 <= other < len(found):
        return False
    here, there = found[place], found[other]
    return here.chunk == there.chunk and here.sentence.paragraph == there.sentence.paragraph
