"""What the tests of the whole system share."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askback.agent.v1 import chat_pb2
from askback.client import AgentClient, KnowledgeClient, StorageClient
from askback.rag.v1 import trace_pb2
from askback.storage.v1 import run_pb2
from services.runtime.server import RunningServer

EXAMPLES = Path(__file__).parents[2] / "examples"

OpenAgent = Callable[..., AbstractAsyncContextManager[RunningServer]]

_CITED_SENTENCE = re.compile(r"(.+?)\s*((?:\[\d+\])+)([.。!?！？]?)\s*", re.DOTALL)


@dataclass(frozen=True)
class System:
    storage: StorageClient
    agent: AgentClient
    knowledge: KnowledgeClient
    agent_server: RunningServer
    storage_address: str
    database_url: str
    knowledge_url: str


def kinds(events: Sequence[chat_pb2.ChatEvent]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


def text_of(events: Sequence[chat_pb2.ChatEvent]) -> str:
    return "".join(event.content.text for event in events)


def step_kinds(events: Sequence[chat_pb2.ChatEvent]) -> list[str]:
    return [
        chat_pb2.RagStepKind.Name(event.rag_step.kind).removeprefix("RAG_STEP_KIND_")
        for event in events
        if event.HasField("rag_step")
    ]


def trace_of(events: Sequence[chat_pb2.ChatEvent]) -> trace_pb2.RagTrace:
    [trace] = [event.rag_trace for event in events if event.HasField("rag_trace")]
    return trace


def cited_sentences(answer: str) -> list[tuple[str, list[int]]]:
    """The sentences of an answer, each with the numbers of the passages that it cites; it has no others."""
    found, place = [], 0
    while place < len(answer):
        match = _CITED_SENTENCE.match(answer, place)
        assert match is not None, f"no citation after: {answer[place:]!r}"
        found.append((match[1], [int(number) for number in re.findall(r"\d+", match[2])]))
        place = match.end()
    return found


def plain(text: str) -> str:
    """Without white space, marks and closing punctuation: what a sentence and its passage have in common."""
    return re.sub(r"[\s*`_|#>.。:：-]", "", text)


async def chat(agent: AgentClient, **request: Any) -> list[chat_pb2.ChatEvent]:
    return [event async for event in agent.stream_chat(**request)]


async def until(holds: Callable[[], bool | Awaitable[bool]], *, within_s: float = 10) -> None:
    """Looks again and again until it holds; raises TimeoutError where it does not come to."""
    async with asyncio.timeout(within_s):
        while True:
            held = holds()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.01)


async def until_finished(storage: StorageClient, user: str, run_id: str) -> run_pb2.Run:
    run = run_pb2.Run()

    async def has_finished() -> bool:
        run.CopyFrom(await storage.get_run(user_id=user, run_id=run_id))
        return run.status != run_pb2.RUN_STATUS_RUNNING

    await until(has_finished)
    return run
