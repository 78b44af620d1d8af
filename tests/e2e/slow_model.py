"""A chat model that speaks when a test lets it: for what the built-in model is too quick for."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import PrivateAttr


class PacedChatModel(BaseChatModel):
    """Says `pieces`, waiting before each but the first until `go_on` is set or an exception is given."""

    pieces: list[str]
    fails_with: Any = None
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
        try:
            for place, piece in enumerate(self.pieces):
                if place:
                    await self._go_on.wait()
                yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if self.fails_with is not None:
                raise self.fails_with
        finally:
            self._stopped.set()
