"""One streamed reply, told piece by piece, tried again while nothing of it was told."""

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk

from services.agent.errors import ModelMalformed, ModelRefused, ModelUnavailable
from services.agent.models.openai_compatible.failures import CONTENT_FILTER, failure_of
from services.agent.models.openai_compatible.patience import Patience

OpenStream = Callable[[], AsyncGenerator[ChatGenerationChunk]]


async def stream_reply(open_stream: OpenStream, *, first_token_limit_s: float) -> AsyncGenerator[ChatGenerationChunk]:
    """The text as it comes; then, in one last chunk, the calls of tools, whole, and the usage.

    Raises ServiceError. A reply that fails is asked for again only while none of its text was told.
    """
    patience = Patience("the first token of the answer", limit_s=first_token_limit_s)
    while True:
        reply = _Reply()
        try:
            async with aclosing(open_stream()) as chunks:
                async with patience.limit():
                    await reply.begin(chunks)
                async for text in reply.texts(chunks):
                    yield text
            last = reply.end()
        except Exception as error:
            failure = failure_of(error)
            if reply.told:
                raise failure.error from None
            await patience.before_another_try(failure)
            continue
        yield last
        return


class _Reply:
    def __init__(self) -> None:
        self.told = False
        self._waiting: ChatGenerationChunk | None = None
        self._calls: list[AIMessageChunk] = []
        self._usage: UsageMetadata | None = None
        self._finish_reason: str | None = None
        self._heard = False

    async def begin(self, chunks: AsyncIterator[ChatGenerationChunk]) -> None:
        """Reads up to the first text or the first piece of a call, or to the end."""
        async for chunk in chunks:
            self._note(chunk)
            if chunk.text:
                self._waiting = chunk
            if chunk.text or self._calls:
                return

    async def texts(self, chunks: AsyncIterator[ChatGenerationChunk]) -> AsyncGenerator[ChatGenerationChunk]:
        """All chunks with text, from the first on."""
        if self._waiting is not None:
            self.told = True
            yield self._waiting
        async for chunk in chunks:
            self._note(chunk)
            if chunk.text:
                self.told = True
                yield chunk

    def end(self) -> ChatGenerationChunk:
        """What is left to tell of a reply that ended well; raises what it ended with otherwise."""
        if self._finish_reason is None:
            raise ModelUnavailable if self._heard else ModelMalformed
        if self._finish_reason == CONTENT_FILTER:
            raise ModelRefused(CONTENT_FILTER)
        merged = add_ai_message_chunks(AIMessageChunk(content=""), *self._calls)
        calls = [_whole(call) for call in merged.tool_call_chunks]
        if not (self.told or calls):
            raise ModelMalformed
        message = AIMessageChunk(content="", tool_call_chunks=calls, usage_metadata=self._usage)
        return ChatGenerationChunk(message=message, generation_info={"finish_reason": self._finish_reason})

    def _note(self, chunk: ChatGenerationChunk) -> None:
        """Keeps what is told at the end; some endpoints report the usage so far in every chunk."""
        self._heard = True
        message = chunk.message
        if chunk.generation_info:
            self._finish_reason = chunk.generation_info.pop("finish_reason", None) or self._finish_reason
        if isinstance(message, AIMessageChunk):
            if message.usage_metadata is not None:
                self._usage, message.usage_metadata = message.usage_metadata, None
            if message.tool_call_chunks:
                self._calls.append(AIMessageChunk(content="", tool_call_chunks=message.tool_call_chunks))
                message.tool_call_chunks = []


def _whole(call: ToolCallChunk) -> ToolCallChunk:
    """The call as it can be carried out: with an id, by which its result is told from another's."""
    try:
        whole = bool(call["name"]) and isinstance(json.loads(call["args"] or "{}"), dict)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise ModelMalformed
    return call if call["id"] else {**call, "id": f"call_{uuid.uuid4().hex}"}
