"""A chat model that speaks when a test lets it: for what the built-in model is too quick for, or too good."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import PrivateAttr

from services.agent.models.roles import Models, built_in_models
from services.agent.tools.knowledge import KNOWLEDGE_TOOL_NAME


class PacedChatModel(BaseChatModel):
    """Searches once, then says `pieces`, waiting before each but the first until it may `go_on`.

    `before_search` is what it says beside its search; `query` what it searches for, empty for the question
    itself, None for no search at all.
    """

    pieces: list[str]
    fails_with: Any = None
    before_search: str = ""
    query: str | None = ""
    _go_on: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)
    _stopped: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)
    _seen: list[Sequence[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "paced"

    @property
    def stopped(self) -> asyncio.Event:
        """Set once a call has ended, cancelled or not."""
        return self._stopped

    @property
    def seen(self) -> list[Sequence[BaseMessage]]:
        """The messages of each call."""
        return self._seen

    def go_on(self) -> None:
        self._go_on.set()

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise AssertionError("the agent streams")

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        raise AssertionError("the agent streams asynchronously")

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        self._seen.append(list(messages))
        if self.query is not None and not isinstance(messages[-1], ToolMessage):
            for chunk in self._search(self.query or str(messages[-1].text)):
                yield chunk
            return
        try:
            for place, piece in enumerate(self.pieces):
                if place:
                    await self._go_on.wait()
                yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if self.fails_with is not None:
                raise self.fails_with
        finally:
            self._stopped.set()

    def _search(self, query: str) -> Iterator[ChatGenerationChunk]:
        if self.before_search:
            yield ChatGenerationChunk(message=AIMessageChunk(content=self.before_search))
        call = ToolCallChunk(name=KNOWLEDGE_TOOL_NAME, args=json.dumps({"query": query}), id="call", index=0)
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


def speaking(*pieces: str, fails_with: Exception | None = None) -> tuple[PacedChatModel, Models]:
    """The model, and the built-in ones with it in place of the answering one."""
    model = PacedChatModel(pieces=list(pieces), fails_with=fails_with)
    return model, replace(built_in_models(), answering=model)
