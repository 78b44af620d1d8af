"""Finds out whether the best passages speak of different things that the question does not tell apart.

A passage's scope is what its document, or within one document its section, is about: the words of title,
file name or heading that the passage itself takes up and the passages it competes with do not. "The alarm
delay of the Alder line is 15 minutes" and the like sentence from the manual of the Birch line differ in
scope; so do two sections of a price list. Nothing is known of any one subject beforehand.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from services.agent.language import has_han
from services.agent.models.extractive.asking import counts_in
from services.agent.models.extractive.evidence import WORTH_SAYING, Evidence, Passage, named_by_file
from services.agent.models.extractive.terms import Term, TermKind, fold, stems_of, terms_of

# A passage competes where it covers, within a tenth, as much of the question as the best: less than the
# weight of one ordinary term among four.
_COMPETES = 0.9
# What explains the question's words without an answer of the kind may cover more of it than the answers do.
_FITS_AT_LEAST = 0.5
_MAX_OPTIONS = 8
# Two passages say the same where their words, but for the scopes' own names, are nearly all the same.
_SAME_WORDS = 0.9
# Candidates are of one kind where their titles or headings ("Seed plan", "Grove plan") or they themselves
# are half the same. Headings of a few Han characters share but the last ("青苗版", "果园版"): a third.
_PARALLEL_OUTLINE = 0.5
_PARALLEL_SENTENCE = 0.5
_SHORT_HAN_HEADING = 6


@dataclass(frozen=True, slots=True)
class Scope:
    """One thing that the question may mean."""

    label: str
    passage: Passage


@dataclass(frozen=True, slots=True)
class Openness:
    """`scopes` are the candidates, two or more, or empty; `unnamed` says that candidates differ without a name."""

    scopes: list[Scope]
    unnamed: bool = False


_CLEAR = Openness([])


def openness(evidence: Evidence) -> Openness:
    """Whether the question's subject is open, judged by the passages that cover it best."""
    rivals = _rivals(evidence)
    state = _between_passages(evidence, rivals)
    return _between_columns(evidence, rivals) if state is _CLEAR else state


def _between_passages(evidence: Evidence, rivals: Sequence[Passage]) -> Openness:
    by_document = _Contest(
        evidence, rivals, key=lambda passage: passage.filename, outline=_document_outline, by_title=True
    )
    if len(by_document.groups) > 1:
        if by_document.is_named_in_question:
            return _CLEAR
        if len(by_document.parallel()) > 1:
            return by_document.verdict()
    best = next(iter(by_document.groups.values()), [])
    by_section = _Contest(evidence, best, key=_section_of, outline=_section_outline, by_title=False)
    return _CLEAR if by_section.is_named_in_question else by_section.verdict()


def _between_columns(evidence: Evidence, rivals: Sequence[Passage]) -> Openness:
    """A row that covers the question as well as anything, and tells a different thing of each column."""
    most = max((passage.coverage for passage in rivals), default=0.0)
    row = next((passage for passage in rivals if passage.sentence.columns and passage.coverage >= most), None)
    if row is None or not 2 <= len(row.sentence.columns) <= _MAX_OPTIONS:
        return _CLEAR
    asked = {term.form for term in evidence.terms}
    named = {term.form for column in row.sentence.columns for term in terms_of(f"of {column}")}
    return _CLEAR if asked & named else Openness([Scope(column, row) for column in row.sentence.columns])


def _rivals(evidence: Evidence) -> list[Passage]:
    """The passages that cover the question as well as the best, and give the kind of answer it wants."""
    answer = evidence.best
    if answer is None:
        return []
    passages = [
        passage
        for passage in evidence.passages
        if passage.aspect >= WORTH_SAYING * answer.aspect and (answer.is_elsewhere or not passage.is_elsewhere)
    ]
    best = max(passage.coverage for passage in passages)
    fitting = max((passage.coverage for passage in passages if passage.fits), default=0.0)
    if fitting < _FITS_AT_LEAST * best:
        return [passage for passage in passages if passage.coverage >= _COMPETES * best]
    return [passage for passage in passages if passage.fits and passage.coverage >= _COMPETES * fitting]


def _section_of(passage: Passage) -> str:
    return " / ".join(passage.sentence.headings)


def _document_outline(passage: Passage) -> list[str]:
    return [*passage.title.split("\n"), *passage.sentence.headings]


def _section_outline(passage: Passage) -> list[str]:
    return [passage.sentence.headings[-1]] if passage.sentence.headings else []


class _Contest:
    """The rivals, grouped by document or by section, and what names each group."""

    def __init__(
        self,
        evidence: Evidence,
        rivals: Sequence[Passage],
        *,
        key: Callable[[Passage], str],
        outline: Callable[[Passage], list[str]],
        by_title: bool,
    ) -> None:
        self._evidence = evidence
        self._by_title = by_title
        self._outline = outline
        self.groups: dict[str, list[Passage]] = {}
        for passage in rivals:
            self.groups.setdefault(key(passage), []).append(passage)
        self._names = {group: self._names_of(passages) for group, passages in self.groups.items()}
        self._outlines = {
            group: {term.form for passage in passages for line in outline(passage) for term in terms_of(line)}
            for group, passages in self.groups.items()
        }
        self.is_named_in_question = self._keep_the_named()

    def _names_of(self, passages: Sequence[Passage]) -> dict[str, Term]:
        """The words of a group's outlines that its passages take up."""
        names: dict[str, Term] = {}
        for passage in passages:
            written = {term.form: term for term in terms_of(passage.sentence.text)}
            for line in self._outline(passage):
                for term in terms_of(line):
                    if _has(term, passage.sentence.folded, passage.sentence.words):
                        # Within a sentence a capital letter tells a name; at a heading's start it tells nothing.
                        names.setdefault(term.form, written.get(term.form, term))
        return names

    def _keep_the_named(self) -> bool:
        """Where the question names some of the groups and not others, those alone stay in the contest."""
        named = {group: self._named_by_question(passages) for group, passages in self.groups.items()}
        most = max((len(terms) for terms in named.values()), default=0)
        kept = [group for group, terms in named.items() if len(terms) == most]
        self.groups = {group: self.groups[group] for group in kept}
        self._names = {group: self._names[group] for group in kept}
        self._outlines = {group: self._outlines[group] for group in kept}
        # Several that are named each by its own name are all wanted; several that share a name are still open.
        own = [named[group] - set().union(*(named[other] for other in kept if other != group)) for group in kept]
        return (len(kept) < len(named) and len(kept) == 1) or (len(kept) > 1 and all(own))

    def _named_by_question(self, passages: Sequence[Passage]) -> set[str]:
        """The terms of the question that name a group: any in the title of a document or the heading of a section.

        Of the headings within a document only names and numbers count: which of its sections hold rivals is
        chance, and an ordinary word there names no document.
        """
        titles = {term.form for line in passages[0].title.split("\n") for term in terms_of(line)}
        headings = {term.form for passage in passages for line in self._outline(passage) for term in terms_of(line)}
        naming = titles if self._by_title else headings
        return {
            term.form
            for term in self._evidence.terms
            if term.form in naming or (term.is_specific and term.form in headings)
        }

    def _shared(self) -> set[str]:
        """The words in the outlines of more than one group, which tell none apart."""
        seen: set[str] = set()
        shared: set[str] = set()
        for words in self._outlines.values():
            shared |= seen & words
            seen |= words
        return shared

    def scopes(self) -> list[Scope]:
        """One candidate for each group that has a name of its own; equal names count once."""
        asked = {term.form for term in self._evidence.terms}
        shared = self._shared()
        found: dict[str, Scope] = {}
        for group, passages in self.groups.items():
            own = [term for form, term in self._names[group].items() if form not in shared and form not in asked]
            if not own:
                continue
            passage, label = self._labelled(passages, own)
            found.setdefault(fold(label), Scope(label, passage))
        return list(found.values())

    def parallel(self) -> list[Scope]:
        """The candidates that are of one kind with the best: what else covers the question is about something else."""
        scopes = self.scopes()
        if not scopes:
            return []
        labels = {word for scope in scopes for word in _words(scope.label)}
        asked = {term.form for term in self._evidence.terms}
        best = max(scopes, key=lambda scope: scope.passage.score)
        return [scope for scope in scopes if scope is best or self._are_parallel(best, scope, labels, asked)]

    def _are_parallel(self, one: Scope, other: Scope, labels: set[str], asked: set[str]) -> bool:
        """Whether titles, headings or the sentences themselves are alike but for the names."""
        for line in self._outline(one.passage):
            for counterpart in self._outline(other.passage):
                if line != counterpart and _alike(line, counterpart) >= _PARALLEL_OUTLINE:
                    return True
        left, right = (scope.passage.sentence.text.replace(scope.label, "") for scope in (one, other))
        if has_han(left):
            return _alike(left, right) >= _PARALLEL_SENTENCE
        ours, theirs = ({word for word in _words(text) - labels - asked if word.isalpha()} for text in (left, right))
        return len(ours & theirs) >= _PARALLEL_SENTENCE * max(len(ours | theirs), 1)

    def _labelled(self, passages: Sequence[Passage], own: Sequence[Term]) -> tuple[Passage, str]:
        """The name that most of the document's evidence takes up, and the best passage that has it."""
        asked = {term.form for term in self._evidence.terms}
        filename = passages[0].filename
        everything = [passage.sentence for passage in self._evidence.passages if passage.filename == filename]

        def spread(term: Term) -> tuple[bool, int]:
            mentions = sum(_has(term, sentence.folded, sentence.words) for sentence in everything)
            return term.is_specific, mentions

        chosen = max(own, key=spread)
        passage = next(
            candidate for candidate in passages if _has(chosen, candidate.sentence.folded, candidate.sentence.words)
        )
        return passage, _label(chosen, own, passage, outline=self._outline(passage), asked=asked)

    def verdict(self) -> Openness:
        """The candidates, in the order of their documents, unless they all say the same."""
        scopes = self.parallel()
        if len(scopes) < 2:
            return _CLEAR
        if len(scopes) > _MAX_OPTIONS:
            return Openness([], unnamed=True)
        if not _differ(scopes):
            return _CLEAR
        return Openness(sorted(scopes, key=lambda scope: (_natural(scope.passage.filename), scope.passage.order)))


def _has(term: Term, folded: str, words: frozenset[str]) -> bool:
    return term.form in words or (not term.form.isascii() and term.form in folded)


def _label(chosen: Term, own: Sequence[Term], passage: Passage, *, outline: Iterable[str], asked: set[str]) -> str:
    """How the passage and its headings write the name: the whole heading where the passage has it in full."""
    text, folded = passage.sentence.text, passage.sentence.folded
    for line in outline:
        words = {term.form for term in terms_of(line)}
        if chosen.form in words and fold(line) in folded and len(words) <= 3 and not words & asked:
            return line
    pieces = terms_of(text)
    place = next((index for index, term in enumerate(pieces) if term.form == chosen.form), None)
    if place is None:
        return chosen.surface
    first = last = place
    names = {term.form for term in own if term.kind is chosen.kind}
    while first > 0 and pieces[first - 1].form in names and _adjacent(text, pieces[first - 1], pieces[first]):
        first -= 1
    while last + 1 < len(pieces) and pieces[last + 1].form in names and _adjacent(text, pieces[last], pieces[last + 1]):
        last += 1
    # A bare version or number says little: "firmware 3.x" rather than "3.x".
    if chosen.kind is TermKind.NUMBER and first > 0 and _adjacent(text, pieces[first - 1], pieces[first]):
        first -= 1
    return _between(text, pieces[first], pieces[last])


def _adjacent(text: str, left: Term, right: Term) -> bool:
    return re.search(rf"{re.escape(left.surface)}\s?{re.escape(right.surface)}", text) is not None


def _between(text: str, first: Term, last: Term) -> str:
    if first is last:
        return first.surface
    found = re.search(rf"{re.escape(first.surface)}.*?{re.escape(last.surface)}", text)
    return found.group() if found else last.surface


def _alike(one: str, other: str) -> float:
    """How much of two lines is the same, in order; by characters in Chinese, by words otherwise."""
    if not (has_han(one) and has_han(other)):
        ours, theirs = (re.findall(r"\w+", fold(line)) for line in (one, other))
        return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()
    ratio = SequenceMatcher(None, one, other, autojunk=False).ratio()
    is_short = max(len(one), len(other)) <= _SHORT_HAN_HEADING
    return 1.0 if is_short and one[-1] == other[-1] and len(one) == len(other) else ratio


def _differ(scopes: Sequence[Scope]) -> bool:
    """Whether at least two candidates give different answers."""
    labels = {word for scope in scopes for word in _words(scope.label)}
    first, *others = scopes
    return any(not _same(first.passage, other.passage, labels) for other in others)


def _same(one: Passage, other: Passage, labels: set[str]) -> bool:
    numbers = [counts_in(passage.sentence.folded) for passage in (one, other)]
    if numbers[0] != numbers[1]:
        return False
    left, right = (_words(passage.sentence.text) - labels for passage in (one, other))
    return len(left & right) >= _SAME_WORDS * max(len(left | right), 1)


def _words(text: str) -> set[str]:
    folded = fold(text)
    return {term.form for term in terms_of(text)} | stems_of(folded)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", named_by_file(name))]
