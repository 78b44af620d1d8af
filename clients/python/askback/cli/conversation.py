"""Asking, being asked back, and answering, in the terminal."""

import importlib
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import typer
from rich.console import Console

from askback.cli.failures import reach
from askback.cli.output import print_json
from askback.cli.printable import printable
from askback.cli.render import TurnRenderer
from askback.client.agent import AgentClient
from askback.client.storage import StorageClient
from askback.rag.v1 import hitl_pb2

# Once it is loaded, input() edits lines and knows wide characters; not every platform has it.
with suppress(ImportError):
    importlib.import_module("readline")


@dataclass(frozen=True)
class Caller:
    """Who asks, and where."""

    user: str
    agent_address: str
    storage_address: str
    collection: str = ""
    as_json: bool = False


@dataclass(frozen=True)
class Turn:
    """What came of one turn; `task` is set where the agent asked back."""

    session_id: str
    task: hitl_pb2.HitlTask | None


async def take_turn(caller: Caller, console: Console, *, message: str, session_id: str = "", answers: str = "") -> Turn:
    """One turn, drawn as it comes."""
    with TurnRenderer(console) as renderer:
        async with (
            reach(AgentClient(caller.agent_address), service="agent", setting="ASKBACK_AGENT_ADDRESS") as agent,
            agent.stream_chat(
                user_id=caller.user,
                session_id=session_id,
                message=message,
                answers_task_id=answers,
                collection=caller.collection,
            ) as events,
        ):
            task: hitl_pb2.HitlTask | None = None
            async for event in events:
                if event.HasField("started"):
                    session_id = event.started.session_id
                elif event.HasField("hitl_request"):
                    task = event.hitl_request
                if caller.as_json:
                    print_json(event)
                else:
                    renderer.event(event)
    return Turn(session_id=session_id, task=task)


async def task_to_answer(caller: Caller, task_id: str) -> hitl_pb2.HitlTask:
    """The question of that id, as it is stored."""
    async with reach(
        StorageClient(caller.storage_address), service="storage service", setting="ASKBACK_STORAGE_ADDRESS"
    ) as storage:
        return await storage.get_hitl_task(user_id=caller.user, task_id=task_id)


def picked(words: str, options: Sequence[str]) -> str:
    """The option that a number picks; any other words are the answer as they are."""
    words = words.strip()
    if words.isdecimal() and 1 <= int(words) <= len(options):
        return options[int(words) - 1]
    return words


def read_line(prompt: str) -> str | None:
    """A line of the user's, edited and without blanks around it; None at the end of input."""
    try:
        return input(prompt).strip()
    except EOFError:
        typer.echo()
        return None


def read_answer(task: hitl_pb2.HitlTask) -> str | None:
    """The user's answer to a question back; None leaves it open."""
    hint = f"1-{len(task.options)}, or your own words" if task.options else "your answer"
    typer.echo()
    words = read_line(f"{hint} > ")
    return picked(words, task.options) if words else None


def tell_open(console: Console, caller: Caller, turn: Turn, *, next_words_answer: bool) -> None:
    """Says which question is left open, and how to go on with it."""
    if turn.task is None:
        return
    command = ["askback", "ask", "--user", caller.user, "--session", turn.session_id, "--answers", turn.task.task_id]
    console.print(
        f"\nopen question {printable(turn.task.task_id)}; "
        + ("what you say next answers it; or later" if next_words_answer else "answer it later with")
        + f"\n  {printable(shlex.join(command))} ANSWER",
        style="dim",
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
    )


def interactive() -> bool:
    """Whether someone is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()
