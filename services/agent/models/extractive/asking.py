"""What kind of answer a question wants, and whether a sentence holds one of that kind."""

import re
from enum import Enum

from services.agent.models.extractive.terms import fold


class Asking(Enum):
    NUMBER = "number"
    DURATION = "duration"
    TIME = "time"
    STEPS = "steps"
    REASON = "reason"
    YES_NO = "yes_no"
    FACT = "fact"


# The first that fits says it, so the narrower come first.
_ASKING = (
    (Asking.DURATION, re.compile(r"\bhow (?:long|often)\b|多久|多长时间|几(?:个)?(?:天|小时|分钟|秒|周|月|年)")),
    (Asking.NUMBER, re.compile(r"\bhow (?:many|much|far|fast|large|big|heavy)\b|多少|几个|几台|多大|多快|多重|多远")),
    (Asking.TIME, re.compile(r"\bwhen\b|\bwhat time\b|什么时候|何时|几点|哪天|哪年")),
    (Asking.STEPS, re.compile(r"\bhow (?:do|can|should|would|to)\b|怎么|怎样|如何|步骤")),
    (Asking.REASON, re.compile(r"\bwhy\b|为什么|为何|原因")),
    (
        Asking.YES_NO,
        re.compile(r"^\s*(?:is|are|can|does|do|did|will|may|must|should|has|have)\b|吗[？?]?\s*$|是否|能不能|是不是"),
    ),
)

# A count, not the digits of a model, a version or a port's name.
_COUNT = re.compile(
    r"(?<![\w.\-])[−\-±<>≤≥€$£¥]?\d+(?:[.,:]\d+)*(?!\.?[\w])(?!\.x)|\d+(?:\.\d+)?\s*(?=[\u4e00-\u9fff%°])"
)
_COUNT_WORD = re.compile(
    r"\b(?:no|one|two|three|four|five|six|seven|eight|nine|ten|twelve|hundred|thousand|once|twice|free|half|unlimited"
    r"|never)\b|免费|不限|无限|[一二三四五六七八九十百千万两半]+(?=[个次台年月天周条份支只家名人项种位倍])"
)
_SPAN = re.compile(
    r"\d[\d.,]*\s*(?:-\s*)?(?:working\s+|business\s+)?(?:ms|milliseconds?|s|seconds?|min|minutes?|h|hours?|days?|weeks?|months?"
    r"|quarters?|years?)\b|\d[\d.,]*\s*个?(?:毫秒|秒|分钟|小时|工作日|天|日|周|星期|月|季度|年)"
    r"|\b(?:daily|weekly|monthly|yearly|forever|for good|(?:an?|per|every|each|one|two|three|half an?)"
    r" (?:few |other )?(?:second|minute|hour|day|week|month|quarter|year)s?)\b"
    r"|永久|每[天日周月年次季]|[一二三四五六七八九十两半]个?(?:分钟|小时|天|周|月|年)"
)
_MOMENT = re.compile(
    r"\d|\b(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday|day|night|morning|evening|before|after|when|once|until"
    r"|at once)\b|[年月日号点周]|之前|之后|立即|时"
)
_REASON = re.compile(r"\b(?:because|since|so that|as|due to|therefore|hence)\b|因为|由于|所以|因此|以免|避免|否则")


def asking_of(question: str) -> Asking:
    folded = fold(question)
    return next((asking for asking, pattern in _ASKING if pattern.search(folded)), Asking.FACT)


def holds_answer(folded: str, asking: Asking) -> bool:
    """Whether the folded sentence has what such a question asks for; a question of steps or facts may take any."""
    if asking is Asking.NUMBER:
        return _COUNT.search(folded) is not None or _COUNT_WORD.search(folded) is not None
    if asking is Asking.DURATION:
        return _SPAN.search(folded) is not None
    if asking is Asking.TIME:
        return _MOMENT.search(folded) is not None
    if asking is Asking.REASON:
        return _REASON.search(folded) is not None
    return True


def counts_in(folded: str) -> frozenset[str]:
    """The numbers that a sentence states."""
    return frozenset(match.strip() for match in _COUNT.findall(folded))
