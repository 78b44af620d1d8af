"""What the scripted model server can reply, well or badly."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.model_server.wire import Received, ReplyWriter

INPUT_TOKENS = 11
OUTPUT_TOKENS = 7


class Reply(Protocol):
    async def send(self, request: Received, writer: ReplyWriter) -> None: ...


@dataclass(frozen=True)
class Says:
    """Text, streamed piece by piece where a stream is asked for.

    Before each piece after the first it waits for `go_on`, and before the first one for `begin`.
    """

    pieces: Sequence[str]
    finish_reason: str | None = "stop"
    begin: asyncio.Event | None = None
    go_on: asyncio.Event | None = None
    usage: bool = True

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        if self.begin is not None:
            await self.begin.wait()
        if not request.body.get("stream"):
            message = {"role": "assistant", "content": "".join(self.pieces)}
            await _completion(writer, message, finish_reason=self.finish_reason, usage=self.usage)
            return
        await writer.begin_stream()
        await _delta(writer, {"role": "assistant", "content": ""})
        for place, piece in enumerate(self.pieces):
            if place and self.go_on is not None:
                await self.go_on.wait()
            await _delta(writer, {"content": piece})
        await _end(request, writer, finish_reason=self.finish_reason, usage=self.usage)


@dataclass(frozen=True)
class Calls:
    """A call of a tool, its arguments cut into fragments where a stream is asked for; `before` is said first."""

    name: str
    arguments: dict[str, Any] | str
    fragments: int = 4
    before: str = ""
    bare: bool = False
    """Without the index and the id, as some endpoints do it; then in one fragment."""

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        arguments = self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)
        whole = {"id": "call_1", "type": "function", "function": {"name": self.name, "arguments": arguments}}
        if not request.body.get("stream"):
            message = {"role": "assistant", "content": self.before or None, "tool_calls": [whole]}
            await _completion(writer, message, finish_reason="tool_calls", usage=True)
            return
        await writer.begin_stream()
        await _delta(writer, {"role": "assistant", "content": self.before or None})
        if self.bare:
            await _delta(writer, {"tool_calls": [{"type": "function", "function": whole["function"]}]})
            await _end(request, writer, finish_reason="tool_calls", usage=True)
            return
        first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": self.name, "arguments": ""}}
        await _delta(writer, {"tool_calls": [first]})
        size = max(1, -(-len(arguments) // self.fragments))
        for start in range(0, len(arguments), size):
            fragment = {"index": 0, "function": {"arguments": arguments[start : start + size]}}
            await _delta(writer, {"tool_calls": [fragment]})
        await _end(request, writer, finish_reason="tool_calls", usage=True)


@dataclass(frozen=True)
class Writes:
    """An object of the form asked for: as text, or as the call of the one tool that was asked for."""

    value: Any

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        text = self.value if isinstance(self.value, str) else json.dumps(self.value)
        chosen = request.body.get("tool_choice")
        reply: Reply = Calls(chosen["function"]["name"], text) if isinstance(chosen, dict) else Says([text])
        await reply.send(request, writer)


@dataclass(frozen=True)
class Fails:
    """An error in the provider's form."""

    status: int
    text: str = "the provider's own words"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        error = {"message": self.text, "type": "error", "code": self.code, "param": None}
        body = json.dumps({"error": error}).encode()
        await writer.whole(body, status=self.status, headers=self.headers)


@dataclass(frozen=True)
class FailsInStream:
    """A stream that turns into an error after its first pieces."""

    pieces: Sequence[str] = ()
    code: str = "server_error"

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        await writer.begin_stream()
        for piece in self.pieces:
            await _delta(writer, {"role": "assistant", "content": piece})
        await _event(writer, {"error": {"message": "the provider's own words", "type": self.code, "code": self.code}})
        await writer.end_stream()


@dataclass(frozen=True)
class Hangs:
    """Goes silent, after some pieces or before anything at all, until its client hangs up."""

    pieces: Sequence[str] = ()

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        if self.pieces:
            await writer.begin_stream()
            for piece in self.pieces:
                await _delta(writer, {"role": "assistant", "content": piece})
        await asyncio.Event().wait()


@dataclass(frozen=True)
class CutsOff:
    """Breaks the connection off, after some pieces or before anything at all."""

    pieces: Sequence[str] = ()

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        if self.pieces:
            await writer.begin_stream()
            for piece in self.pieces:
                await _delta(writer, {"role": "assistant", "content": piece})
        writer.cut()


@dataclass(frozen=True)
class Garbage:
    """Something that is no reply of a model at all; `in_stream` puts it into an event."""

    text: str = "<html>Bad gateway</html>"
    content_type: str = "text/html"
    in_stream: bool = False

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        if not self.in_stream:
            await writer.whole(self.text.encode(), content_type=self.content_type, headers={})
            return
        await writer.begin_stream()
        await writer.piece(f"data: {self.text}\n\n".encode())
        await writer.end_stream()


@dataclass(frozen=True)
class Refuses:
    """The provider's refusal of a content, in the words of its own field."""

    text: str = "I cannot help with that."

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        if not request.body.get("stream"):
            message = {"role": "assistant", "content": None, "refusal": self.text}
            await _completion(writer, message, finish_reason="stop", usage=True)
            return
        await writer.begin_stream()
        await _delta(writer, {"role": "assistant", "content": None, "refusal": self.text})
        await _end(request, writer, finish_reason="stop", usage=True)


@dataclass(frozen=True)
class Embeds:
    """A vector for each text: how often each of the first letters occurs in it."""

    dimensions: int = 8

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        texts = request.body["input"]
        texts = [texts] if isinstance(texts, str) else texts
        data = [
            {"object": "embedding", "index": place, "embedding": [float(text.count(chr(97 + n))) for n in self._places]}
            for place, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": INPUT_TOKENS, "total_tokens": INPUT_TOKENS}
        body = {"object": "list", "model": request.body["model"], "data": data, "usage": usage}
        await writer.whole(json.dumps(body).encode(), headers={})

    @property
    def _places(self) -> range:
        return range(self.dimensions)


@dataclass(frozen=True)
class Reranks:
    """The share of the query's words that a document holds, best first."""

    async def send(self, request: Received, writer: ReplyWriter) -> None:
        words = set(request.body["query"].lower().split())
        scored = [
            {"index": place, "relevance_score": len(words & set(document.lower().split())) / max(1, len(words))}
            for place, document in enumerate(request.body["documents"])
        ]
        scored.sort(key=lambda result: -result["relevance_score"])
        body = {"model": request.body.get("model"), "results": scored[: request.body.get("top_n") or None]}
        await writer.whole(json.dumps(body).encode(), headers={})


async def _completion(writer: ReplyWriter, message: dict[str, Any], *, finish_reason: str | None, usage: bool) -> None:
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if usage:
        body["usage"] = _usage()
    await writer.whole(json.dumps(body).encode(), headers={})


async def _end(request: Received, writer: ReplyWriter, *, finish_reason: str | None, usage: bool) -> None:
    if finish_reason is not None:
        await _delta(writer, {}, finish_reason=finish_reason)
    if usage and (request.body.get("stream_options") or {}).get("include_usage"):
        await _event(writer, {**_CHUNK, "choices": [], "usage": _usage()})
    await writer.piece(b"data: [DONE]\n\n")
    await writer.end_stream()


_CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}


async def _delta(writer: ReplyWriter, delta: dict[str, Any], *, finish_reason: str | None = None) -> None:
    await _event(writer, {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


async def _event(writer: ReplyWriter, value: dict[str, Any]) -> None:
    await writer.piece(f"data: {json.dumps(value)}\n\n".encode())


def _usage() -> dict[str, int]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
