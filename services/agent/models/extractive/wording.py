"""What the built-in model says in its own words, in both languages; all else is quoted."""

from collections.abc import Sequence

from services.agent.language import Language


def _in(language: Language, english: str, chinese: str) -> str:
    return chinese if language is Language.CHINESE else english


def self_description(language: Language) -> str:
    return _in(
        language,
        "Hello! I am the built-in extractive model of Askback. I write nothing of my own: I search the documents and "
        "answer in their own sentences, each with its source. I ask you back where a question can mean several things.",
        "您好！我是 Askback 内置的抽取式模型。我不会自己编写内容，只检索文档，并用文档原句回答，每句都注明出处。"
        "问题可能有多种含义时，我会先向您确认。",
    )


def welcome(language: Language) -> str:
    return _in(language, "You are welcome.", "不客气！")


def nothing_known(language: Language) -> str:
    return _in(
        language,
        "I found no answer to this in the documents.",
        "在文档中没有找到这个问题的答案。",
    )


def partly_known(language: Language) -> str:
    return _in(
        language,
        "The documents answer this only in part.",
        "文档只能回答其中一部分。",
    )


def not_covered(language: Language, question: str) -> str:
    return _in(language, f"The documents say nothing about: {question}", f"文档中没有关于“{question}”的内容。")


def leads_on(language: Language) -> str:
    """The mark between a heading and what stands under it."""
    return _in(language, ":", "：")


def search_failed(language: Language) -> str:
    return _in(
        language,
        "The documents could not be searched just now. Please try again.",
        "暂时无法检索文档，请稍后再试。",
    )


def which_one(language: Language, labels: Sequence[str]) -> str:
    listed = _listed(language, labels)
    return _in(
        language,
        f"The documents answer this differently for {listed}. Which one do you mean?",
        f"文档对{listed}有不同的说明，请问您指的是哪一个？",
    )


def which_case(language: Language) -> str:
    return _in(
        language,
        "The documents give several answers, depending on what exactly is meant. Which product, version or case do "
        "you mean?",
        "文档中有多种答案，取决于具体情况。请问您指的是哪个产品、版本或情形？",
    )


def nearest(language: Language, passages: Sequence[tuple[str, str]]) -> str:
    """What is said where no passage answers, with the sentences that come nearest and their documents."""
    if not passages:
        return _in(
            language,
            "The documents answer this only in part. Could you say more exactly what you would like to know?",
            "文档只能回答其中一部分。能否更具体地说明您想了解什么？",
        )
    shown = "\n".join(
        _in(language, f"- “{sentence}” ({filename})", f"- “{sentence}”（{filename}）")
        for sentence, filename in passages
    )
    return _in(
        language,
        f"The documents do not answer this directly. The nearest that they say:\n{shown}\n"
        "If that is not it, could you put the question in other words?",
        f"文档没有直接回答这个问题，最接近的内容是：\n{shown}\n如果这不是您想要的，请换一种说法提问。",
    )


def open_condition(language: Language) -> str:
    return _in(language, "product, version or case", "产品、版本或情形")


def no_evidence(language: Language) -> str:
    return _in(language, "no passage was found", "没有检索到任何段落")


def off_subject(language: Language, missing: Sequence[str]) -> str:
    listed = _listed(language, missing)
    return (
        _in(language, f"no passage mentions {listed}", f"没有段落提到{listed}")
        if missing
        else _in(language, "no passage is about the question", "没有段落与问题相关")
    )


def covered(language: Language, share: float, filename: str) -> str:
    percent = round(100 * share)
    return _in(
        language,
        f"one sentence of {filename} covers {percent} % of the question",
        f"{filename} 中有一句覆盖了问题的 {percent}%",
    )


def open_subject(language: Language, labels: Sequence[str]) -> str:
    listed = _listed(language, labels)
    return _in(language, f"the answer differs for {listed}", f"{listed}的答案各不相同")


def one_question(language: Language) -> str:
    return _in(language, "it asks for one thing", "只问了一件事")


def too_long_to_split(language: Language) -> str:
    return _in(language, "too long to be taken apart, so taken as one question", "问题过长，不作拆分，按单一问题处理")


def several_questions(language: Language, count: int) -> str:
    return _in(language, f"it asks for {count} things", f"问了 {count} 件事")


def about(language: Language, subjects: Sequence[str]) -> str:
    """The step back: what is known about a subject at large."""
    if language is Language.CHINESE:
        return f"{''.join(subjects)}有哪些规定和说明？"
    return f"What is known about {' '.join(subjects)} in general?"


def _listed(language: Language, labels: Sequence[str]) -> str:
    if language is Language.CHINESE:
        return "、".join(f"“{label}”" for label in labels)
    quoted = [f"“{label}”" for label in labels]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}" if quoted else ""
