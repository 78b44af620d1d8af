"""`demo`: one conversation on a private copy of the system, printed as it streams."""

import re
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from askback.cli.citations import cited, source
from askback.cli.messages import print_message
from askback.cli.output import print_line
from askback.cli.printable import printable
from askback.cli.render import TurnRenderer
from askback.client import AgentClient, AskbackError, StorageClient
from askback.rag.v1 import trace_pb2
from askback.storage.v1 import run_pb2
from services.local.errors import LocalError
from services.local.run import EXAMPLES, FIRST_QUESTION
from services.local.system import System, running_system

USER, SESSION = "ada", "demo"
OPEN_QUESTION, CHOICE = "How do I reset the admin PIN?", "Cedar"
CHINESE_QUESTION, CHINESE_CHOICE = "默认上报间隔是多少？", "雪松"
_BAR_WIDTH = 30


class DemoFailed(Exception):
    """The conversation did not go as a sound system's does; the text says where."""


async def demo() -> int:
    """The exit code: 0 once the conversation went as it should, 1 where it did not or could not."""
    console = Console(highlight=False)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="askback-demo-") as folder:
            async with running_system(
                home=Path(folder),
                report=lambda line: console.print(line, style="dim"),
                durable=False,
                starting="Starting a private copy of the system; it leaves nothing behind",
            ) as system:
                count = await system.ingest(EXAMPLES)
                console.print(f"{count} documents ingested after {time.monotonic() - began:.1f} s", style="dim")
                await _converse(console, system)
    except (LocalError, AskbackError, DemoFailed) as error:
        console.print(f"The demo stops here: {error}", style="red")
        return 1
    console.print(f"\nDone in {time.monotonic() - began:.1f} s. To go on by yourself: make run", style="dim")
    return 0


async def _converse(console: Console, system: System) -> None:
    async with AgentClient(system.agent_address) as agent, StorageClient(system.storage_address) as storage:
        _headline(console, "1. A question is answered from the documents, with citations")
        answered = await _turn(console, agent, FIRST_QUESTION)
        _require_citations(answered)

        _headline(console, "2. A question that leaves it open what is meant is asked back")
        asked = await _turn(console, agent, OPEN_QUESTION)
        if asked.task is None or not asked.task.options:
            raise DemoFailed("nothing was asked back")

        _headline(console, f"3. The answer goes on where the question stopped: “{CHOICE}”")
        resumed = await _turn(console, agent, CHOICE, answers_task_id=asked.task.task_id)
        _require_citations(resumed)

        _headline(console, "4. The same in Chinese, in a session of its own")
        chinese = await _turn(console, agent, CHINESE_QUESTION, session=f"{SESSION}-zh")
        if chinese.task is None:
            raise DemoFailed("nothing was asked back in Chinese")
        _require_citations(await _turn(console, agent, CHINESE_CHOICE, session=f"{SESSION}-zh"))

        _headline(console, "5. The trace of answer 3: how it was found")
        _draw_trace(console, resumed)

        _headline(console, "6. The stored session")
        await _draw_session(console, storage)


async def _turn(
    console: Console, agent: AgentClient, message: str, *, session: str = SESSION, answers_task_id: str = ""
) -> TurnRenderer:
    console.print(Text.assemble(("you  ", "bold"), message), soft_wrap=True)
    with TurnRenderer(console) as turn:
        async with agent.stream_chat(
            user_id=USER, session_id=session, message=message, answers_task_id=answers_task_id
        ) as events:
            async for event in events:
                turn.event(event)
    if turn.finished is None:
        raise DemoFailed("a turn did not finish")
    return turn


def _require_citations(turn: TurnRenderer) -> None:
    """Every sentence cites a passage that holds it, word for word."""
    if turn.finished is None or turn.finished.status != run_pb2.RUN_STATUS_COMPLETED or turn.trace is None:
        raise DemoFailed("a question was not answered")
    sentences = [part for part in re.split(r"(?<=\])[.。]?\s*", turn.text) if part.strip()]
    for sentence in sentences:
        words = _bare(re.sub(r"\[\d+\]", "", sentence))
        if not any(words in _bare(chunk.text) for _, chunk in cited(sentence, turn.trace.retrieved_chunks)):
            raise DemoFailed("a sentence has no citation that holds it")


def _bare(text: str) -> str:
    return re.sub(r"[\W_]", "", text)


def _draw_trace(console: Console, turn: TurnRenderer) -> None:
    trace = turn.trace or trace_pb2.RagTrace()
    whole = max((timing.start_ms + timing.elapsed_ms for timing in trace.timings), default=1) or 1
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "from", "ms", ""):
        table.add_column(heading, justify="right" if heading in ("from", "ms") else "left")
    for timing in trace.timings:
        before = round(timing.start_ms / whole * _BAR_WIDTH)
        length = max(1, round(timing.elapsed_ms / whole * _BAR_WIDTH))
        bar = " " * min(before, _BAR_WIDTH - 1) + "█" * length
        table.add_row(timing.stage, str(timing.start_ms), str(timing.elapsed_ms), Text(bar, style="cyan"))
    console.print(table)
    grade = trace.evidence
    console.print(
        f"searched {printable(trace.query)!r}: {trace.retrieval.mode}, {trace.retrieval.recall_count} recalled;"
        f" relevance {trace_pb2.Relevance.Name(grade.relevance).removeprefix('RELEVANCE_').lower()},"
        f" answerability {trace_pb2.Answerability.Name(grade.answerability).removeprefix('ANSWERABILITY_').lower()}"
    )
    console.print("the evidence, best first: by its rank after fusion, with neighbours merged")
    for number, chunk in enumerate(trace.retrieved_chunks, start=1):
        print_line(console, f"  [{number}] {source(chunk)}")


async def _draw_session(console: Console, storage: StorageClient) -> None:
    session = await storage.get_session(user_id=USER, session_id=SESSION)
    console.print(f"{session.title!r}, revision {session.revision}, {session.message_count} messages", markup=False)
    console.print()
    async for message in storage.messages(user_id=USER, session_id=SESSION):
        print_message(console, message, in_detail=True)


def _headline(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))
