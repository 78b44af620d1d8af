"""Writes answers out of the evidence's own sentences, each with the number of the chunk that holds it."""

import re
from collections.abc import Sequence

from services.agent.language import Language, has_han, language_of
from services.agent.models.extractive import wording
from services.agent.models.extractive.asking import Asking
from services.agent.models.extractive.evidence import ON_ASPECT, WORTH_SAYING, Evidence, Passage
from services.agent.models.extractive.weighing import weigh
from services.agent.schemas import RetrievedChunk

MAX_SENTENCES = 5
_MAX_FOR_ONE_QUESTION = 3
# A step of an instruction is worth saying where it stands beside the best one and speaks of the same.
_SAME_STEPS = 0.5
# Below this share of a question no sentence is an answer to it; grading calls it weak.
_LEAST_COVERAGE = 0.35
_SAME_SENTENCE = 0.8

_ENDING = re.compile(r"\s*([.。!！?？;；:：,，]+[\"”’」』）)\]]*)$")
_BRACKETED_NUMBER = re.compile(r"\[(\d+)\]")


def compose(
    question: str,
    chunks: Sequence[RetrievedChunk],
    *,
    sub_questions: Sequence[str] = (),
    uncovered: Sequence[str] = (),
    is_partial: bool = False,
) -> str:
    """The whole answer: sentences for the question, or a paragraph of them for each of its parts.

    What is said without a source is said only where `is_partial` asks for it, or where nothing is found.
    """
    language = language_of(question)
    asked = list(sub_questions) or [question]
    limit = min(_MAX_FOR_ONE_QUESTION, max(1, MAX_SENTENCES // len(asked)))
    said: list[Passage] = []
    paragraphs: list[str] = []
    open_parts = list(uncovered)
    for part in asked:
        chosen = [] if part in open_parts else select(weigh(part, chunks), limit=limit, beside=said)
        if chosen:
            said += chosen
            paragraphs.append(_paragraph(chosen, chunks))
        elif is_partial and len(asked) > 1 and part not in open_parts:
            open_parts.append(part)
    if not said:
        return wording.nothing_known(language)
    if is_partial:
        paragraphs += [wording.not_covered(language, part) for part in open_parts] or [wording.partly_known(language)]
    return "\n\n".join(paragraphs)


def select(evidence: Evidence, *, limit: int = _MAX_FOR_ONE_QUESTION, beside: Sequence[Passage] = ()) -> list[Passage]:
    """The sentences to answer with, best first; none that `beside` holds already."""
    best = evidence.best
    if best is None or (best.coverage < _LEAST_COVERAGE and not best.lacks) or best.aspect < ON_ASPECT:
        return []
    if evidence.asks_for_name_alone:
        limit = 1
    if evidence.asking is Asking.STEPS:
        further = _steps_beside(evidence, best)
        steps = sum(passage.sentence.is_item for passage in further)
        limit = limit if beside else min(max(limit, steps + 1), MAX_SENTENCES)
    else:
        further = [passage for passage in evidence.passages if _is_worth_saying(evidence, best, passage)]
    chosen: list[Passage] = []
    for passage in (best, *further):
        if len(chosen) < limit and not any(_repeats(passage, other) for other in (*beside, *chosen)):
            chosen.append(passage)
    return chosen


def _is_worth_saying(evidence: Evidence, best: Passage, passage: Passage) -> bool:
    if passage.score < WORTH_SAYING * best.score or passage.coverage < WORTH_SAYING * best.coverage:
        return False
    if passage.aspect < WORTH_SAYING * best.aspect or (passage.is_elsewhere and not best.is_elsewhere):
        return False
    return _speaks_of_the_same(evidence, best, passage) and (passage.fits or not best.fits)


def _speaks_of_the_same(evidence: Evidence, best: Passage, passage: Passage) -> bool:
    """Whether it has every name and number of the question that the best one has: no other product's sentence."""
    return best.near & evidence.specific <= passage.near


def _steps_beside(evidence: Evidence, best: Passage) -> list[Passage]:
    """What follows the best sentence in its section: the steps of a list, or more about the same."""
    section = sorted(
        (
            passage
            for passage in evidence.passages
            if passage.filename == best.filename
            and passage.sentence.headings == best.sentence.headings
            and passage.order > best.order
        ),
        key=lambda passage: passage.order,
    )
    return [
        passage
        for passage in section
        if passage.sentence.is_item
        or (passage.coverage >= _SAME_STEPS * best.coverage and _speaks_of_the_same(evidence, best, passage))
    ]


def _repeats(passage: Passage, other: Passage) -> bool:
    if passage.sentence.folded == other.sentence.folded:
        return True
    words, others = passage.sentence.words, other.sentence.words
    if has_han(passage.sentence.text) or not words:
        return False
    # Sentences that differ in a number say different things, however alike they are.
    differing = words ^ others
    if any(character.isdigit() for word in differing for character in word):
        return False
    return len(words & others) >= _SAME_SENTENCE * len(words | others)


def _paragraph(passages: Sequence[Passage], chunks: Sequence[RetrievedChunk]) -> str:
    text = ""
    previous: Passage | None = None
    under = ""
    for passage in passages:
        if previous is not None:
            text += _between(previous, passage)
        heading = _needed_heading(passage, chunks)
        if heading and heading != under:
            text += f"{cite(heading, passage.chunk + 1)}{wording.leads_on(language_of(heading))}\n"
        under = heading
        text += cite(passage.sentence.text, passage.chunk + 1)
        previous = passage
    return text


def _needed_heading(passage: Passage, chunks: Sequence[RetrievedChunk]) -> str:
    """The heading that a list's item or a table's row needs to be understood; empty for a whole sentence."""
    sentence = passage.sentence
    if not sentence.headings or not (sentence.is_row or sentence.is_item) or _ENDING.search(sentence.text):
        return ""
    heading = sentence.headings[-1]
    return heading if heading in chunks[passage.chunk].text else ""


def _between(left: Passage, right: Passage) -> str:
    if left.sentence.is_item or right.sentence.is_item or not _ENDING.search(left.sentence.text):
        return "\n"
    return "" if language_of(left.sentence.text) is Language.CHINESE else " "


def cite(sentence: str, number: int) -> str:
    """The sentence with its source before the closing mark: "It lasts 3 years [2]."

    A number in brackets of the document's own would read as a source, so its brackets are made round.
    """
    sentence = _BRACKETED_NUMBER.sub(r"(\1)", sentence)
    gap = "" if language_of(sentence) is Language.CHINESE else " "
    if ending := _ENDING.search(sentence):
        return f"{sentence[: ending.start()]}{gap}[{number}]{ending.group(1)}"
    return f"{sentence}{gap}[{number}]"
