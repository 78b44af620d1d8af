"""What kind of answer a question wants, and whether a sentence holds one of that kind."""

import re
from enum import Enum

from services.agent.models.extractive.terms import fold


class Asking(Enum):
    NUMBER = "number"
    PRICE = "price"
    DURATION = "duration"
    FREQUENCY = "frequency"
    TIME = "time"
    STEPS = "steps"
    REASON = "reason"
    EVENT = "event"
    YES_NO = "yes_no"
    FACT = "fact"


_MAX_ASKED = 1_000

# The first that fits says it, so the narrower come first.
_ASKING = (
    # A period or an interval may be told either way: "12 months", "every 12 months".
    (
        Asking.FREQUENCY,
        re.compile(
            r"\bhow (?:often|frequently)\b|\b(?:what|how long)\b.*\b(?:period|interval|cycle)\b"
            r"|多久.*一次|隔多久|周期.*(?:多久|多长|多少)"
        ),
    ),
    (Asking.DURATION, re.compile(r"\bhow long\b|多久|多长时间|几(?:个)?(?:天|小时|分钟|秒|周|月|年)")),
    (
        Asking.PRICE,
        re.compile(r"\bhow much (?:is|are|for|money)\b|\bhow much (?:do|does|will|would)\b.*\bcost\b|多少钱|几块钱"),
    ),
    (Asking.NUMBER, re.compile(r"\bhow (?:many|much|far|fast|large|big|heavy)\b|多少|几个|几台|多大|多快|多重|多远")),
    (
        Asking.TIME,
        re.compile(
            r"(?:^|[,.;:?!]\s*)(?:and |but |since |until |from )?when\b|\bwhat time\b|什么时候|何时|几点|哪天|哪年"
        ),
    ),
    (Asking.STEPS, re.compile(r"\bhow (?:do|can|should|would|to)\b|怎么|怎样|如何|步骤")),
    (Asking.REASON, re.compile(r"\bwhy\b|为什么|为何|原因")),
    # What is asked for by a noun instead: "the battery life" is how long it lasts.
    (Asking.DURATION, re.compile(r"\b(?:what|which)\b.*\b(?:life|lifetime|lifespan|duration)\b|\b\w+ life\b|寿命")),
    (Asking.PRICE, re.compile(r"\b(?:what|which)\b.*\b(?:costs?|price|fee)\b|价格|价钱|费用")),
    (
        Asking.EVENT,
        re.compile(r"\b(?:was|were) there\b|\b(?:has|have) there been\b|\bever (?:been|had)\b|发生过|出现过|曾经"),
    ),
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
# What comes again after a while lasts no while: "every two years" is no answer to how long.
_RATE = re.compile(
    r"\b(?:every|each|per|once an?|twice an?|\d an?)\s+(?:[\w.]+\s+)?(?:seconds?|minutes?|hours?|days?|weeks?|months?"
    r"|quarters?|years?)\b|每\s?[\d一二三四五六七八九十两半]*\s?个?(?:秒|分钟|小时|天|日|周|月|季度|年)"
)
_MOMENT = re.compile(
    r"\d|\b(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday|day|night|morning|evening|before|after|when|once|until"
    r"|at once)\b|[年月日号点周]|之前|之后|立即|时"
)
_MONEY = re.compile(r"[€$£¥]|\d\s*(?:%|元|块|euros?\b|dollars?\b|eur\b|usd\b|cny\b|rmb\b)|\bfree\b|免费|免收|不收")
# A thing that happened is told with its day or year.
_DATED = re.compile(r"\b(?:19|20)\d\d\b")
_REASON = re.compile(r"\b(?:because|since|so that|as|due to|therefore|hence)\b|因为|由于|所以|因此|以免|避免|否则")


def asking_of(question: str) -> Asking:
    # A person asks early; what is longer is searched no further than that, since patterns cost more than its length.
    folded = fold(question[:_MAX_ASKED])
    return next((asking for asking, pattern in _ASKING if pattern.search(folded)), Asking.FACT)


def holds_answer(folded: str, asking: Asking) -> bool:
    """Whether the folded sentence has what such a question asks for; a question of steps or facts may take any."""
    if asking is Asking.NUMBER:
        return _COUNT.search(folded) is not None or _COUNT_WORD.search(folded) is not None
    if asking is Asking.PRICE:
        return _MONEY.search(folded) is not None
    if asking is Asking.EVENT:
        return _DATED.search(folded) is not None
    if asking is Asking.DURATION:
        return _SPAN.search(_RATE.sub(" ", folded)) is not None
    if asking is Asking.FREQUENCY:
        return _SPAN.search(folded) is not None
    if asking is Asking.TIME:
        return _MOMENT.search(folded) is not None
    if asking is Asking.REASON:
        return _REASON.search(folded) is not None
    return True


def counts_in(folded: str) -> frozenset[str]:
    """The numbers that a sentence states."""
    return frozenset(match.strip() for match in _COUNT.findall(folded))
