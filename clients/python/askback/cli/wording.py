"""The interface's own words at a question back, in the language of the question."""

import re
from dataclasses import dataclass

_HAN = re.compile("[\u3400-\u9fff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3040-\u30ff]")
_LATIN = re.compile("[A-Za-z]")


@dataclass(frozen=True)
class Wording:
    pick: str
    """The prompt where there are options; `{count}` is how many."""
    free: str
    """The prompt where there are none."""
    no_such_option: str
    ways: str
    """What else can be said in a chat."""
    open: str
    """`{task}` waits, and the next message in its session answers it."""
    something_else: str


ENGLISH = Wording(
    pick="1-{count}, or your own words > ",
    free="your answer > ",
    no_such_option="choose 1 to {count}, or answer in words",
    ways="an empty line leaves it open; /skip: your next question takes its place",
    open="open question {task}; the next message in this session answers it:",
    something_else="to ask something else instead, which withdraws it:",
)
CHINESE = Wording(
    pick="1-{count}，或直接输入您的回答 > ",
    free="您的回答 > ",
    no_such_option="请选择 1 至 {count}，或用文字回答",
    ways="直接回车：暂不回答；/skip：用下一个问题取代它",
    open="待答问题 {task}；本会话的下一条消息就是它的回答：",
    something_else="如要另问别的问题（并撤回此问题）：",
)


def wording_for(question: str) -> Wording:
    """Chinese where the question is; names in another script inside it count for little."""
    han = len(_HAN.findall(question))
    return CHINESE if han > len(_LATIN.findall(question)) and not _KANA.search(question) else ENGLISH
