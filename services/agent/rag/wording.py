"""Every word of the pipeline that a user may see, in Chinese and in English."""

from collections.abc import Sequence
from enum import Enum

from services.agent.language import Language
from services.agent.request_context import ChatRequestContext, RagStepKind
from services.agent.schemas import Answerability, EvidenceGrade, Relevance, RetrievalStatus

_MAX_DETAIL = 200


class Line(Enum):
    """A step as it is told: its kind, its icon, its label in Chinese and in English."""

    RECEIVED = (RagStepKind.RECEIVED, "📨", "已收到问题", "Question received")
    TOOL_KNOWLEDGE = (RagStepKind.TOOL, "🛠️", "调用知识库检索工具", "Calling the knowledge search")
    CLASSIFYING = (RagStepKind.CLASSIFY, "🧭", "正在分析问题", "Working out what is asked")
    CLASSIFIED_SIMPLE = (RagStepKind.CLASSIFY, "🧭", "这是一个单一问题", "It is one question")
    CLASSIFIED_COMPLEX = (RagStepKind.CLASSIFY, "🧭", "问题拆分为多个子问题", "It is several questions")
    SUB_QUESTION = (RagStepKind.SUB_QUESTION, "🧩", "处理子问题", "Taking up a part of the question")
    RETRIEVING = (RagStepKind.RETRIEVE, "🔍", "正在检索知识库", "Searching the knowledge base")
    RETRIEVING_REWRITTEN = (RagStepKind.RETRIEVE, "🔍", "用改写后的问题再次检索", "Searching again with the new query")
    RETRIEVING_TARGETED = (RagStepKind.RETRIEVE, "🎯", "按您的回答定向检索", "Searching for what you answered")
    RETRIEVED = (RagStepKind.RETRIEVE, "📄", "检索完成", "Search finished")
    RETRIEVAL_FAILED = (RagStepKind.RETRIEVE, "⚠️", "检索失败", "The search failed")
    MERGING = (RagStepKind.AUTO_MERGE, "🧱", "合并相邻段落", "Merging neighbouring passages")
    RERANKING = (RagStepKind.RERANK, "📊", "重新排序", "Putting the passages in order")
    GRADING = (RagStepKind.GRADE, "⚖️", "正在评估证据", "Weighing the evidence")
    GRADED = (RagStepKind.GRADE, "⚖️", "证据评估完成", "Evidence weighed")
    REWRITING = (RagStepKind.REWRITE, "✏️", "正在改写问题", "Rewording the query")
    REWRITTEN = (RagStepKind.REWRITE, "✏️", "问题已改写", "Query reworded")
    REWRITE_GIVEN_UP = (RagStepKind.REWRITE, "✏️", "未能改写问题", "No better query was found")
    SYNTHESIZED = (RagStepKind.SYNTHESIZE, "🧬", "汇总子问题的证据", "Joining the evidence of the parts")
    ASK_BACK = (RagStepKind.ASK_BACK, "💬", "需要您补充信息", "Asking you back")
    RESUMED = (RagStepKind.RESUME, "▶️", "根据您的回答继续", "Going on with your answer")
    NO_KNOWLEDGE = (RagStepKind.NO_KNOWLEDGE, "📭", "知识库中没有相关内容", "The knowledge base has nothing on this")

    def __init__(self, kind: RagStepKind, icon: str, zh: str, en: str) -> None:
        self.kind = kind
        self.icon = icon
        self.zh = zh
        self.en = en


def tell(context: ChatRequestContext, line: Line, *, detail: str = "", group: str = "", group_label: str = "") -> None:
    """Emits a step in the language of the question."""
    context.emit_rag_step(
        line.kind,
        icon=line.icon,
        label=_in(context.language, line.zh, line.en),
        detail=_shortened(detail),
        group=group,
        group_label=_shortened(group_label),
    )


def passages(language: Language, count: int) -> str:
    return _in(language, f"{count} 段", "1 passage" if count == 1 else f"{count} passages")


def recalled(language: Language, *, recall_count: int | None, merged: int, kept: int) -> str:
    """How many passages each step of the retrieval left."""
    parts = []
    if recall_count is not None:
        parts.append(_in(language, f"召回 {recall_count} 段", f"{passages(language, recall_count)} recalled"))
    if merged:
        parts.append(_in(language, f"合并 {merged} 段", f"{merged} merged"))
    parts.append(_in(language, f"保留 {kept} 段", f"{kept} kept"))
    return _in(language, "，", ", ").join(parts)


_RELEVANCE = {
    Relevance.NONE: ("不相关", "not relevant"),
    Relevance.WEAK: ("弱相关", "weakly relevant"),
    Relevance.STRONG: ("强相关", "strongly relevant"),
}
_ANSWERABILITY = {
    Answerability.NONE: ("无法回答", "no answer in it"),
    Answerability.PARTIAL: ("可部分回答", "part of an answer"),
    Answerability.SUFFICIENT: ("可完整回答", "a full answer"),
}
_STATUS = {
    RetrievalStatus.ANSWERABLE: ("可以回答", "can be answered"),
    RetrievalStatus.PARTIAL: ("可以部分回答", "can be answered in part"),
    RetrievalStatus.NEEDS_REWRITE: ("需要改写问题", "needs a better query"),
    RetrievalStatus.NEEDS_CLARIFICATION: ("需要补充条件", "needs a condition from you"),
    RetrievalStatus.NEEDS_SCOPE_SELECTION: ("需要选择范围", "needs a choice from you"),
    RetrievalStatus.NO_KNOWLEDGE: ("没有答案", "nothing known"),
}


def verdict(language: Language, grade: EvidenceGrade, status: RetrievalStatus) -> str:
    """A grade and what follows from it, in words."""
    parts = [_in(language, *_STATUS[status])]
    if grade.relevance is not None:
        parts.append(_in(language, *_RELEVANCE[grade.relevance]))
    if grade.answerability is not None:
        parts.append(_in(language, *_ANSWERABILITY[grade.answerability]))
    return _in(language, "，", ", ").join(parts)


def parts_covered(language: Language, *, covered: int, total: int, chunks: int) -> str:
    return _in(
        language,
        f"{total} 个子问题中 {covered} 个有证据，共 {chunks} 段",
        f"evidence for {covered} of {total} parts, {passages(Language.ENGLISH, chunks)}",
    )


def count_of_parts(language: Language, count: int) -> str:
    return _in(language, f"{count} 个子问题", f"{count} parts")


def single_by_rule(language: Language) -> str:
    return _in(language, "问题简短，且明显只有一个", "short and plainly a single question")


def not_classed(language: Language, reason: str) -> str:
    return _in(language, f"未能分类（{reason}），按单一问题处理", f"not classed ({reason}), taken as one question")


def nothing_found(language: Language) -> str:
    return _in(language, "没有检索到任何内容", "the search found nothing")


def clarify_prompt(language: Language) -> str:
    """Asked where the evidence covers the question only in part, and the grader has no question of its own."""
    return _in(
        language,
        "目前只找到部分相关内容。您能否说明得更具体一些，例如产品、版本或使用场景？",
        "Only part of an answer was found. Could you be more specific, for example about the product, the version "
        "or the situation?",
    )


def scope_prompt(language: Language) -> str:
    """Asked where several directions fit, and the grader has no question of its own."""
    return _in(
        language, "您的问题可能有几种含义，请问是哪一种？", "This can mean several things. Which one do you mean?"
    )


def joined_prompts(language: Language, prompts: Sequence[str]) -> str:
    """Several questions to the user as one text."""
    if len(prompts) == 1:
        return prompts[0]
    lead = _in(language, "请补充以下几点：", "A few things are open:")
    return "\n".join([lead, *(f"- {prompt}" for prompt in prompts)])


def _in(language: Language, zh: str, en: str) -> str:
    return zh if language is Language.CHINESE else en


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_DETAIL else text[: _MAX_DETAIL - 1] + "…"
