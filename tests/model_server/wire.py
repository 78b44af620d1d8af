"""Just enough of HTTP/1.1 to serve a client that keeps its connections: requests with a length, chunked replies."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

MAX_HEAD_BYTES = 64 * 1024
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(eq=False)
class Received:
    """One request, as it came, and whether its client hung up before the reply was whole."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up_at: float | None = None
    """By the loop's clock."""

    @property
    def asks_for(self) -> str:
        """The name of the form that the reply must have; empty where a plain reply is wanted."""
        if (form := self.body.get("response_format", {}).get("json_schema")) is not None:
            return str(form["name"])
        choice = self.body.get("tool_choice")
        return str(choice["function"]["name"]) if isinstance(choice, dict) else ""

    @property
    def text(self) -> str:
        """The words of all messages."""
        return "\n".join(str(message.get("content") or "") for message in self.body.get("messages", ()))


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    """The next request of a connection; None once the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    request_line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    _, path, _ = request_line.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(path=path, headers=headers, body=json.loads(body) if body else {})


class ReplyWriter:
    """Writes one reply: whole, or in pieces as they come."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def whole(
        self, body: bytes, *, status: int = 200, content_type: str = "application/json", headers: dict[str, str]
    ) -> None:
        self._head(status, {"content-type": content_type, "content-length": str(len(body)), **headers})
        self._writer.write(body)
        await self._writer.drain()

    async def begin_stream(self) -> None:
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def piece(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()

    async def end_stream(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def cut(self) -> None:
        """Closes the connection where it stands."""
        self._writer.transport.abort()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))


__all__ = ["MAX_HEAD_BYTES", "Received", "ReplyWriter", "read_request"]
