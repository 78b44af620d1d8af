"""A question's evidence: its sentences, each with what it is worth, and which of them to answer with."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from services.agent.language import Language
from services.agent.models.extractive.asking import Asking
from services.agent.models.extractive.sentences import Sentence
from services.agent.models.extractive.terms import Term

# What says it all of what is asked comes before what has a part of it, or has it from its document's title alone.
_NEARLY_ALL = 0.75
# A sentence that covers less than half of what is asked about a subject is about something else of it.
ON_ASPECT = 0.5
# A further sentence is worth saying, and one of the kind that is asked for comes before one that is not, where it
# is nearly as good as the best.
WORTH_SAYING = 0.85


@dataclass(frozen=True, slots=True)
class Passage:
    """One sentence of the evidence, weighed.

    `chunk` is the index of the first chunk that holds it. `coverage` is the share of the question's weight
    that the sentence and its headings cover; `fits` says whether it holds an answer of the kind that is asked
    for. `aspect` is the share of what is asked about the question's subject: of the terms that are no names.
    `near` are the terms that it covers without the help of its document's title. `lacks` are the names of the
    question that neither the sentence nor anything of its document has; `is_elsewhere` says that it is about
    another subject than the one that the question names, and `is_headed` that its section or its document is
    named by it.
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
    lacks: frozenset[str]
    is_elsewhere: bool
    is_headed: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """A question and the passages for it, best first."""

    question: str
    language: Language
    asking: Asking
    terms: list[Term]
    passages: list[Passage]
    absent: frozenset[str]
    """The terms that no passage has, by their form."""
    specific: frozenset[str]
    """The terms that name something: names, numbers, and what tells one document's title from another's."""
    asks_for_name_alone: bool
    """Whether nothing is asked about what is named ("What is the Heron?")."""
    asks_kind_alone: bool
    """Whether nothing is asked but what kind of thing is wanted ("What does the Heron cost?")."""
    has_one_word: bool
    """Whether what is asked of the subject is one word alone."""
    unknown_answer: bool
    """Whether an answer stands before the question with a word that the evidence lacks."""

    @property
    def coverage(self) -> float:
        return self.passages[0].coverage if self.passages else 0.0

    @property
    def best(self) -> Passage | None:
        """The passage to answer with: on the subject and on what is asked about it, where there is one."""
        here = [passage for passage in self.passages if passage.aspect >= ON_ASPECT and not passage.is_elsewhere]
        most = max((passage.aspect for passage in here), default=0.0)
        pools = (
            [passage for passage in here if passage.aspect >= _NEARLY_ALL * most],
            [passage for passage in self.passages if passage.aspect >= ON_ASPECT],
            self.passages,
        )
        pool = next((pool for pool in pools if pool), None)
        if pool is None:
            return None
        best = next((passage for passage in pool if passage.fits), pool[0])
        return best if best.score >= WORTH_SAYING * pool[0].score else pool[0]


def named_by_file(filename: str) -> str:
    """The words of a file's name, without folders and endings."""
    return PurePosixPath(filename.replace("\\", "/")).name.split(".")[0].replace("-", " ").replace("_", " ")
