"""The built-in fast model: tells by their form whether a question is several, and rewords queries by rule."""

import asyncio
import re
from collections.abc import Iterable, Sequence

from services.agent.language import Language, language_of
from services.agent.models.extractive import wording
from services.agent.models.extractive.evidence import Evidence
from services.agent.models.extractive.question import ANSWER_MARK
from services.agent.models.extractive.terms import Term
from services.agent.models.extractive.weighing import weigh
from services.agent.schemas import (
    MAX_SUB_QUESTIONS,
    Complexity,
    ComplexityPlan,
    EvidenceGrade,
    QueryRewrite,
    RetrievedChunk,
    RewriteMethod,
)
from services.agent.usage import UsageListener

_ASKING = r"(?:how|what|when|where|which|who|whom|whose|why|can|could|does|do|did|is|are|was|were|will|should|may|must)"
_PREPOSITION = r"(?:with|in|for|on|at|by|of|from|under|to|during|after|before|without)"
_QUESTION_END = re.compile(r"(?<=[?？])\s*")
_NEXT_QUESTION = re.compile(
    rf"(?:\s*[,;]\s*|\s+)(?:and|but)\s+(?:also\s+)?(?={_ASKING}\b)|\s*;\s+(?={_ASKING}\b)", re.I
)
_CHINESE_NEXT = re.compile(r"[，,；;]?\s*(?:以及|另外|还有|同时|并且)[，,]?\s*|[；;]\s*")
_LEANS = re.compile(
    r"\b(?:it|its|they|them|their|that|this|these|those|he|she|there|one)\b|[它其]|这个|那个|这些|那些|该", re.I
)
_BETWEEN = re.compile(
    r"^(?:what(?:\s+is|\s+are|['’]s)|explain|describe|tell me|show(?: me)?)?\s*(?:the\s+)?differences?\s+"
    r"(?:in\s+(?P<in>.{1,80}?)\s+)?between\s+(?P<both>.+)$",
    re.I,
)
_DIFFER = re.compile(
    r"^how\s+(?:do|does|are)\s+(?P<both>.+?)\s+(?:differ|compare|different)(?:\s+in\s+(?P<in>.+))?$", re.I
)
_ASPECT = re.compile(r"\s+(?:in terms of|regarding|concerning)\s+(.+)$", re.I)
_COMPARE = re.compile(r"^(?:please\s+)?compare\s+(?P<both>.+)$", re.I)
_VERSUS = re.compile(r"^(?P<both>\S+(?:\s+\S+){0,5}?\s+(?:versus|vs\.?)\s+\S+(?:\s+\S+){0,5})$", re.I)
_JOINT = re.compile(r"\s+(?:and|with|versus|vs\.?|to)\s+", re.I)
_AND = re.compile(r"\s+and\s+", re.I)
# What a question asks for by name is "it" in the next one: "How much is a filter, and how long does it …".
_ASKED_FOR = re.compile(r"^(?:how much|what|where|which|who)\s+(?:is|are)\s+(?P<noun>.+)$", re.I)
_IT = re.compile(r"\b(?:it|they|them)\b", re.I)
# "Heron: which pump and what tank?"
_SUBJECT = re.compile(rf"^(?P<subject>[^:：?？]{{1,40}}):\s+(?P<questions>(?:in |for |by |with )?{_ASKING}\b.+)$", re.I)
_OF = re.compile(rf"\b{_PREPOSITION}\b", re.I)
_LEADING = re.compile(rf"^(?P<word>{_PREPOSITION})\b", re.I)

_CHINESE_PAIR = r"(?P<left>[^，,。；;？?]+?)(?:和|与|跟|同|及)(?P<right>[^，,。；;？?]+?)"
_CHINESE_DIFFERENCE = re.compile(
    rf"^(?:请问|请)?{_CHINESE_PAIR}(?:的(?P<of>[^的，,。；;？?]+?))?(?:之间)?(?:有什么|有何|有哪些|的|是否)?"
    r"(?:不同|区别|差别|差异|不一样|异同)(?:之处|是什么|在哪里|有哪些)?$"
)
_CHINESE_COMPARE = re.compile(rf"^(?:请)?(?:比较|对比)(?:一下)?{_CHINESE_PAIR}(?:的(?P<of>[^的，,。；;？?]+))?$")
_CHINESE_EACH = re.compile(rf"^(?:请问)?{_CHINESE_PAIR}(?:的(?P<of>[^的，,。；;？?]+?))?(?:分别|各自|各)(?P<rest>.+)$")
_CHINESE_WHICH = re.compile(
    rf"^(?:请问)?{_CHINESE_PAIR}(?:的(?P<of>[^的，,。；;？?]+?))?(?:相比|比起来)?[，,]?(?:哪个|哪一个|哪款|谁的?)(?:更|比较|最).+$"
)

_EDGES = " \t\n,，.。;；:：、?？!！"
_LEAST_WORDS = 3
_LEAST_HEADED = 2
# What is longer is an account of something rather than several questions; splitting takes time with its square.
_MAX_CHARACTERS = 500


class ExtractiveQuestionModel:
    """A QuestionModel that needs no network and gives the same plan and query for the same input."""

    async def plan(self, question: str, *, on_usage: UsageListener | None = None) -> ComplexityPlan:
        # Off the loop, as grading is.
        return await asyncio.to_thread(plan, question)

    async def rewrite(
        self,
        question: str,
        *,
        chunks: Sequence[RetrievedChunk],
        grade: EvidenceGrade,
        on_usage: UsageListener | None = None,
    ) -> QueryRewrite:
        return await asyncio.to_thread(rewrite, question, list(chunks))


def plan(question: str) -> ComplexityPlan:
    language = language_of(question)
    if len(question) > _MAX_CHARACTERS:
        return ComplexityPlan(complexity=Complexity.SIMPLE, reason=wording.too_long_to_split(language))
    parts = _parts(" ".join(question.split()), language)
    if len(parts) < 2:
        return ComplexityPlan(complexity=Complexity.SIMPLE, reason=wording.one_question(language))
    parts = parts[:MAX_SUB_QUESTIONS]
    return ComplexityPlan(
        complexity=Complexity.COMPLEX,
        reason=wording.several_questions(language, len(parts)),
        sub_questions=parts,
        sub_agent_count=len(parts),
    )


def _parts(question: str, language: Language) -> list[str]:
    """The whole sub-questions, or fewer than two where it is one or where a part would lean on another."""
    chinese = language is Language.CHINESE
    if not chinese and (headed := _SUBJECT.match(question)):
        return _distinct(f"{headed['subject'].strip()}{ANSWER_MARK}{part}" for part in _headed(headed["questions"]))
    pieces = [piece for piece in _QUESTION_END.split(question) if piece.strip(_EDGES)]
    if len(pieces) == 1:
        pieces = (_CHINESE_NEXT if chinese else _NEXT_QUESTION).split(question)
        if chinese and not all(_asks_in_chinese(piece) for piece in pieces):
            pieces = [question]
    if len(pieces) == 1:
        return _compared(question.strip(_EDGES), chinese=chinese)
    whole: list[str] = []
    for piece in pieces:
        bare = re.sub(r"^(?:and|but|also|then)\s+(?:also\s+)?", "", piece.strip(_EDGES), flags=re.I).strip()
        completed = bare if chinese or not whole else _completed(whole[0], _spelled_out(whole[0], bare))
        if whole and (_LEANS.search(completed) or not _is_whole(completed, chinese=chinese)):
            return []
        if completed:
            whole.append(completed)
    return _distinct(_as_question(piece, chinese=chinese) for piece in whole)


def _headed(questions: str) -> list[str]:
    """The questions put about a subject that was named once, before them; each may be as short as "what pump"."""
    pieces = [piece.strip(_EDGES) for piece in _NEXT_QUESTION.split(questions)]
    if len(pieces) < 2 or any(_LEANS.search(piece) or len(piece.split()) < _LEAST_HEADED for piece in pieces):
        return []
    return [_as_question(piece, chinese=False) for piece in pieces]


def _spelled_out(first: str, other: str) -> str:
    """The other question with the first one's noun for "it", where that asked for nothing else."""
    asked_for = _ASKED_FOR.match(first)
    if asked_for is None:
        return other
    noun = asked_for["noun"]
    return _IT.sub(lambda _: noun, other, count=1)


def _compared(question: str, *, chinese: bool) -> list[str]:
    if chinese:
        for pattern in (_CHINESE_DIFFERENCE, _CHINESE_COMPARE, _CHINESE_EACH, _CHINESE_WHICH):
            if found := pattern.match(question):
                parts = found.groupdict()
                return _chinese_pair(parts["left"], parts["right"], parts["of"] or "", parts.get("rest") or "是什么")
        return []
    for pattern in (_BETWEEN, _DIFFER, _COMPARE, _VERSUS):
        if found := pattern.match(question):
            both, aspect = found.group("both"), found.groupdict().get("in") or ""
            return _english_pair(both, aspect, joint=_JOINT if pattern in (_COMPARE, _VERSUS) else _AND)
    return []


def _english_pair(both: str, aspect: str, *, joint: re.Pattern[str]) -> list[str]:
    """ "the fee in Europe and in America" becomes a question for each; the second is completed from the first."""
    sides = _AND.split(both)
    sides = sides if len(sides) > 1 else joint.split(both, maxsplit=1)
    if not 2 <= len(sides) <= MAX_SUB_QUESTIONS:
        return []
    sides = [side for piece in sides for side in piece.split(", ")]
    first, *others = _shared_out([side.strip(_EDGES) for side in sides])
    whole = [first, *(_completed(first, other) for other in others)]
    if aspect:
        whole = [f"the {aspect.removeprefix('the ')} of {side}" for side in whole]
    elif tail := _ASPECT.search(whole[-1]):
        whole = [f"{tail.group(1)} of {side.removesuffix(tail.group())}" for side in whole]
    return _distinct(f"What is {side}?" for side in whole)


def _shared_out(sides: list[str]) -> list[str]:
    """What is said once for all sides, said of each.

    "the weight of the Heron and the Egret", "the weight and the height of the Heron", "Heron and Egret weight".
    """
    first, *others = sides
    last = others[-1]
    has_preposition = [_OF.search(side) is not None for side in sides]
    if has_preposition[0] and not any(has_preposition[1:]):
        head = first[: list(_OF.finditer(first))[-1].end()]
        return [first, *(f"{head} {other}" for other in others)]
    if has_preposition[-1] and not any(has_preposition[:-1]) and len(sides) == 2 and first.lower().startswith("the "):
        return [f"{first} {last[next(_OF.finditer(last)).start() :]}", last]
    if len(last.split()) > 1 and all(len(side.split()) == 1 for side in sides[:-1]) and last[:1].isupper():
        name, _, aspect = last.partition(" ")
        if aspect[:1].islower():
            return [f"the {aspect} of {side}" for side in (*sides[:-1], name)]
    return sides


def _completed(first: str, other: str) -> str:
    """Gives a part that begins with a preposition what the first part has before its own.

    "How long … with firmware 2.x" and "how long with firmware 4.x" share all but the end; so do "the fee …
    by companies in Europe" and "by customers in America".
    """
    bare = re.sub(rf"^{_ASKING}(?:\s+(?:long|many|much|often|far))?\s+(?={_PREPOSITION}\b)", "", other, flags=re.I)
    if (leading := _LEADING.match(bare)) is None:
        return other
    places = list(re.finditer(rf"\b{leading.group('word')}\b", first, re.I))
    if not places:
        places = list(re.finditer(rf"\b{_PREPOSITION}\b", first, re.I))
    return f"{first[: places[-1].start()].strip(_EDGES)} {bare}" if places else f"{first} {bare}"


def _chinese_pair(left: str, right: str, aspect: str, rest: str) -> list[str]:
    left, right = left.strip(_EDGES), right.strip(_EDGES)
    if not aspect and "的" in right:
        right, _, aspect = right.rpartition("的")
    if not aspect and "的" in left and "的" not in right:
        return []
    if left.endswith(f"的{aspect}") and aspect:
        left = left.removesuffix(f"的{aspect}")
    of = f"的{aspect}" if aspect else ""
    return _distinct(f"{side}{of}{rest.strip(_EDGES)}？" for side in (left, right) if side)


def _asks_in_chinese(piece: str) -> bool:
    return re.search(r"什么|怎么|怎样|如何|多少|多久|多长|几|哪|谁|吗|是否|能不能|为何|何时", piece) is not None


def _is_whole(piece: str, *, chinese: bool) -> bool:
    return len(piece) >= 4 if chinese else len(piece.split()) >= _LEAST_WORDS


def _as_question(piece: str, *, chinese: bool) -> str:
    piece = piece.strip(_EDGES)
    return f"{piece}？" if chinese else f"{piece[:1].upper()}{piece[1:]}?"


def _distinct(parts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(parts))


def rewrite(question: str, chunks: Sequence[RetrievedChunk]) -> QueryRewrite:
    """A step back where a name, number or version keeps the question from the evidence; HyDE otherwise.

    The pseudo passage is put together from the sentences that come nearest, so that it is in the documents'
    own words; without any, a step back is all there is.
    """
    evidence = weigh(question, chunks)
    in_the_way = [term for term in evidence.terms if term.is_specific and term.form in evidence.absent]
    general = [term for term in evidence.terms if term not in in_the_way]
    if (in_the_way and general) or not evidence.passages:
        return _step_back(evidence, general or evidence.terms)
    nearest = evidence.passages[:2]
    passage = " ".join(passage.sentence.text for passage in nearest)
    document = f"{' '.join(term.surface for term in evidence.terms)}: {passage}"
    return QueryRewrite(method=RewriteMethod.HYDE, rewritten_query=document, hyde_document=document)


def _step_back(evidence: Evidence, subjects: Sequence[Term]) -> QueryRewrite:
    words = [term.surface for term in subjects] or [evidence.question.strip(_EDGES)]
    question = wording.about(evidence.language, words)
    return QueryRewrite(method=RewriteMethod.STEP_BACK, rewritten_query=question, step_back_question=question)
