"""How the tests run the `askback` command, and read what it asked for."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from askback.agent.v1 import agent_service_pb2
from tests.integration.client.scripted import Services

# Starting Python with the command takes a second or two on a busy machine.
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


Run = Callable[..., Awaitable[Finished]]


def environment(services: Services) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")},
        "ASKBACK_AGENT_ADDRESS": services.address,
        "ASKBACK_STORAGE_ADDRESS": services.address,
        "ASKBACK_USER": "ada",
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "80",
        "TERM": "xterm-256color",
    }


def chat_requests(services: Services) -> list[agent_service_pb2.ChatRequest]:
    requests = [call.request for call in services.agent.recorder.calls]
    return [request for request in requests if isinstance(request, agent_service_pb2.ChatRequest)]
