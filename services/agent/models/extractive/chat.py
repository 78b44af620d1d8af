"""The built-in answering model, in the form that LangChain's agents take: it searches, then quotes.

It writes nothing but what stands in the evidence, a few fixed sentences, and the question that a tool asks
it to put. Whatever a document says is text to quote: no passage can make it call a tool or change what it
does, since it does not read them for orders at all.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from services.agent.language import WIDE, language_of
from services.agent.models.extractive import wording
from services.agent.models.extractive.answer import compose
from services.agent.models.extractive.asking import Asking, asking_of
from services.agent.models.extractive.question import ANSWER_MARK
from services.agent.models.extractive.terms import terms_of
from services.agent.schemas import RagTrace, RetrievalStatus, RetrievedChunk

MODEL_NAME = "askback-extractive"
SEARCH_TOOL = "search_knowledge_base"

_SMALL_TALK = re.compile(
    r"(?:hi|hello|hey|good (?:morning|afternoon|evening|day)|bye|goodbye|how are you"
    r"|(?:so )?(?:who|what) are you|what can you do|what is your name|help"
    r"|你好|您好|嗨|哈喽|早上好|下午好|晚上好|早安|晚安|再见|拜拜|你是谁|您是谁|你是什么|你叫什么(?:名字)?"
    r"|你能做什么|您能做什么|你会什么|帮助)(?:\s+(?:there|all|again))?",
    re.IGNORECASE,
)
_THANKS = re.compile(
    r"(?:(?:ok(?:ay)?|great|perfect|good),? )?"
    r"(?:many thanks|thanks(?: a lot| so much)?|thank you(?: very much| so much)?|thx)"
    r"|(?:好的?[，, ]?)?(?:谢谢(?:你|您|啦|了)?|多谢|感谢(?:你|您)?)",
    re.IGNORECASE,
)
_FOLLOW_UP = re.compile(
    r"(?:and|what about|how about|and what about)\s+(?:(?:for|in|with|on|of)\s+)?"
    r"(?P<english>(?!(?:how|what|when|where|which|who|why|can|does|do|is|are)\b)[^?？.]{1,60})"
    r"|(?:那么?|还有)?(?P<chinese>[^?？。，,]{1,16})呢",
    re.IGNORECASE,
)
_EDGES = " \t\r\n,，.。!！?？~～…"
# A piece of a streamed answer, with the white space before it: a word, or up to four wide characters.
_PIECE = re.compile(rf"\s*[^\s{WIDE}]+|\s*[{WIDE}]{{1,4}}|\s+")


@runtime_checkable
class FoundEvidence(Protocol):
    """What the model reads of a search's outcome, whoever made it."""

    @property
    def status(self) -> RetrievalStatus: ...

    @property
    def chunks(self) -> Sequence[RetrievedChunk]: ...

    @property
    def trace(self) -> RagTrace: ...


class ExtractiveChatModel(BaseChatModel):
    """Answers in the documents' own sentences. It counts no tokens, because it has none, and reports none."""

    can_search: bool = False
    """Whether the search tool is bound; without it, it can only answer from a search in the messages."""

    @property
    def _llm_type(self) -> str:
        return MODEL_NAME

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": MODEL_NAME}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Of all tools it uses the knowledge search alone."""
        names = {convert_to_openai_tool(tool)["function"]["name"] for tool in tools}
        return self.model_copy(update={"can_search": SEARCH_TOOL in names and tool_choice != "none"})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = await asyncio.to_thread(self._reply, messages)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _pieces(self._reply(messages)):
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _pieces(await asyncio.to_thread(self._reply, messages)):
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _reply(self, messages: Sequence[BaseMessage]) -> AIMessage:
        asked = max((place for place, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1)
        question = str(messages[asked].text).strip() if asked >= 0 else ""
        results = [message for message in messages[asked + 1 :] if isinstance(message, ToolMessage)]
        if results:
            return _said(_answer(question, results))
        if self.can_search and question and not is_small_talk(question):
            call_id = f"call_{uuid4().hex}"
            query = whole_question(question, [str(message.text) for message in messages[:asked] if _is_human(message)])
            call = {"name": SEARCH_TOOL, "args": {"query": query}, "id": call_id, "type": "tool_call"}
            return AIMessage(content="", tool_calls=[call], response_metadata={"model_name": MODEL_NAME})
        language = language_of(question)
        return _said(wording.welcome(language) if is_thanks(question) else wording.self_description(language))


def is_small_talk(message: str) -> bool:
    """Whether it is nothing but a greeting, thanks, or a question about the model itself."""
    return _SMALL_TALK.fullmatch(_bare(message)) is not None or is_thanks(message)


def is_thanks(message: str) -> bool:
    return _THANKS.fullmatch(_bare(message)) is not None


def _bare(message: str) -> str:
    return " ".join(message.strip(_EDGES).split())


def whole_question(question: str, earlier: Sequence[str]) -> str:
    """A follow-up ("And for the Birch line?") as a question that can be understood by itself; any other as it is.

    Where it is plain which name of the question before it replaces, it does; otherwise it is put in front of
    that question, in the form that an answer to a question back takes.
    """
    follow_up = _FOLLOW_UP.fullmatch(question.strip(_EDGES))
    followed = next((text.strip() for text in reversed(earlier) if _asks_by_itself(text)), None)
    if follow_up is None or followed is None:
        return question
    subject = (follow_up["english"] or follow_up["chinese"]).strip()
    return _renamed(followed, subject) or f"{subject}{ANSWER_MARK}{followed}"


def _renamed(question: str, subject: str) -> str | None:
    """The question with its one name, or its one number, replaced by the subject's."""
    terms = terms_of(question)
    # Behind another word, so that a capital letter tells a name.
    named = terms_of(f"of {subject}")
    fresh = [term for term in named if term.form not in {known.form for known in terms}]
    if len(fresh) != 1 or not fresh[0].is_specific:
        return None
    kept = {term.form for term in named}
    old = [term for term in terms if term.kind is fresh[0].kind and term.form not in kept]
    # An abbreviation ("PIN") is another kind of name than the name of a product.
    old = [term for term in old if term.surface.isupper() == fresh[0].surface.isupper()]
    if len(old) != 1 or question.count(old[0].surface) != 1:
        return None
    return question.replace(old[0].surface, fresh[0].surface)


def _asks_by_itself(text: str) -> bool:
    bare = text.strip(_EDGES)
    if is_small_talk(text) or _FOLLOW_UP.fullmatch(bare):
        return False
    return len(terms_of(bare)) > 1 and (text.rstrip().endswith(("?", "？")) or asking_of(bare) is not Asking.FACT)


def _is_human(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage)


def _said(text: str) -> AIMessage:
    return AIMessage(content=text, response_metadata={"model_name": MODEL_NAME})


def _answer(question: str, results: Sequence[ToolMessage]) -> str:
    """The answer from the latest search that has evidence; a call past the limit has none, and changes nothing."""
    language = language_of(question)
    found = next((result.artifact for result in reversed(results) if isinstance(result.artifact, FoundEvidence)), None)
    if found is not None:
        return _from_evidence(question, found)
    latest = results[-1]
    if latest.status == "error":
        return wording.search_failed(language)
    return _from_text(question, str(latest.text))


def _from_evidence(question: str, found: FoundEvidence) -> str:
    asked = found.trace.query or question
    if found.status in (RetrievalStatus.NEEDS_CLARIFICATION, RetrievalStatus.NEEDS_SCOPE_SELECTION):
        hitl = found.trace.hitl
        options = [f"{number}. {option}" for number, option in enumerate(hitl.options, start=1)] if hitl else []
        return "\n".join([hitl.prompt if hitl else "", *options]).strip() or wording.which_case(language_of(asked))
    plan = found.trace.complexity
    return compose(
        asked,
        found.chunks,
        sub_questions=plan.sub_questions if plan else (),
        uncovered=getattr(found, "uncovered", ()),
        is_partial=found.status is RetrievalStatus.PARTIAL,
    )


_PASSAGE = re.compile(r"^\[(\d+)\] ?(.*)$")
_QUOTED = re.compile(r"^> ?")


def _from_text(question: str, content: str) -> str:
    """A search's result as text alone: "[1] file", then its lines behind ">"."""
    chunks: list[RetrievedChunk] = []
    lines: list[list[str]] = []
    for line in content.splitlines():
        if (head := _PASSAGE.match(line)) and int(head.group(1)) == len(chunks) + 1:
            chunks.append(RetrievedChunk(filename=head.group(2)))
            lines.append([])
        elif lines and line.startswith(">"):
            lines[-1].append(_QUOTED.sub("", line))
    read = [chunk.model_copy(update={"text": "\n".join(quoted)}) for chunk, quoted in zip(chunks, lines, strict=True)]
    return compose(question, read, is_partial=content.startswith(RetrievalStatus.PARTIAL.name))


def _pieces(message: AIMessage) -> Iterator[ChatGenerationChunk]:
    """The message in pieces whose texts, joined, are its text."""
    message_id = f"run-{uuid4()}"
    metadata = dict(message.response_metadata)
    if message.tool_calls:
        [call] = message.tool_calls
        chunk = tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"], ensure_ascii=False), id=call["id"], index=0
        )
        last = AIMessageChunk(
            content="", id=message_id, tool_call_chunks=[chunk], response_metadata=metadata, chunk_position="last"
        )
        yield ChatGenerationChunk(message=last)
        return
    for piece in _PIECE.findall(str(message.text)):
        yield ChatGenerationChunk(message=AIMessageChunk(content=piece, id=message_id))
    yield ChatGenerationChunk(
        message=AIMessageChunk(content="", id=message_id, response_metadata=metadata, chunk_position="last")
    )
