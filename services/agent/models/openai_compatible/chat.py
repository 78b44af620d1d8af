"""The answering model of an OpenAI-compatible endpoint."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from services.agent.errors import ModelRefused
from services.agent.models.openai_compatible.failures import REFUSAL
from services.agent.models.openai_compatible.streaming import stream_reply

# What an endpoint says to a parameter that it does not know.
UNKNOWN_PARAMETER = frozenset({"400", "415", "422", "501"})


class AnsweringChatModel(ChatOpenAI):
    """A ChatOpenAI that raises the agent's errors, tries again while it may, and gives tool calls whole."""

    first_token_limit_s: float
    _reports_usage: bool = PrivateAttr(default=True)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reports_usage = self._reports_usage
        told = False
        while True:
            try:
                async with aclosing(self._streamed(messages, stop, reports_usage=reports_usage, **kwargs)) as chunks:
                    async for chunk in chunks:
                        # Only now is it known what was refused before: the report, and not the request.
                        self._reports_usage = self._reports_usage and reports_usage
                        told = True
                        yield chunk
                return
            except ModelRefused as refused:
                # Endpoints that are older than `stream_options` refuse it.
                if told or not reports_usage or refused.provider_status not in UNKNOWN_PARAMETER:
                    raise
            reports_usage = False

    def _streamed(
        self, messages: list[BaseMessage], stop: list[str] | None, *, reports_usage: bool, **kwargs: Any
    ) -> AsyncGenerator[ChatGenerationChunk]:
        def open_stream() -> AsyncGenerator[ChatGenerationChunk]:
            stream = super(AnsweringChatModel, self)._astream(messages, stop, stream_usage=reports_usage, **kwargs)
            return cast(AsyncGenerator[ChatGenerationChunk], stream)

        return stream_reply(open_stream, first_token_limit_s=self.first_token_limit_s)

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            # LangChain drops a refusal that is streamed, and tool calls without an index, as some endpoints send them.
            if delta.get("refusal"):
                raise ModelRefused(REFUSAL)
            for place, call in enumerate(delta.get("tool_calls") or ()):
                if call.get("index") is None:
                    call["index"] = place
        return super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
