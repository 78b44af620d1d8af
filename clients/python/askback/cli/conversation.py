"""Asking, being asked back, and answering, in the terminal."""

import importlib
import os
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

import typer
from rich.console import Console

from askback.cli.failures import UsageFault, reach, tell
from askback.cli.options import AGENT_ADDRESS
from askback.cli.output import as_called, print_json
from askback.cli.printable import printable
from askback.cli.render import TurnRenderer
from askback.cli.wording import wording_for
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


class Way(Enum):
    """What may be said instead of a question or an answer."""

    LATER = auto()
    """Nothing: a question back stays open."""
    SKIP = auto()
    """The next question takes the place of the one that waits."""
    END = auto()
    """The conversation is over."""


_WAYS = {"": Way.LATER, "/skip": Way.SKIP, "quit": Way.END, "exit": Way.END, "/quit": Way.END, "/exit": Way.END}


def way_of(words: str) -> Way | None:
    return _WAYS.get(words.lower())


async def take_turn(
    caller: Caller, console: Console, *, message: str, session_id: str = "", answers: str = "", replaces: bool = False
) -> Turn:
    """One turn, drawn as it comes; one that `replaces` withdraws the question that waits in the session."""
    with TurnRenderer(console) as renderer:
        async with (
            reach(AgentClient(caller.agent_address), service="agent", setting="ASKBACK_AGENT_ADDRESS") as agent,
            agent.stream_chat(
                user_id=caller.user,
                session_id=session_id,
                message=message,
                answers_task_id=answers,
                pending_hitl_policy="REPLACE" if replaces else "",
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


def picked(words: str, task: hitl_pb2.HitlTask) -> str:
    """The option that a number picks; UsageFault where there is none of it. Other words are the answer as they are."""
    words = words.strip()
    count = len(task.options)
    if not count or not words.isdecimal():
        return words
    # Longer ones are no number of an option, and not every number of digits becomes an int.
    number = int(words) if len(words) <= 9 else 0
    if not 1 <= number <= count:
        raise UsageFault(wording_for(task.prompt).no_such_option.format(count=count))
    return task.options[number - 1]


def read_line(prompt: str) -> str | None:
    """A line of the user's, edited and without blanks around it; None at the end of input."""
    try:
        return input(prompt).strip()
    except EOFError:
        typer.echo()
        return None


def read_answer(task: hitl_pb2.HitlTask, *, in_chat: bool) -> str | Way:
    """The user's answer to a question back, asked for until it is one, or what was said instead."""
    wording = wording_for(task.prompt)
    prompt = wording.pick.format(count=len(task.options)) if task.options else wording.free
    typer.echo()
    if in_chat:
        typer.secho(wording.ways, dim=True)
    while True:
        words = read_line(prompt)
        if not words:
            return Way.LATER
        if in_chat and (way := way_of(words)):
            return way
        try:
            return picked(words, task)
        except UsageFault as fault:
            tell(fault)


def tell_open(console: Console, caller: Caller, turn: Turn) -> None:
    """Says which question is left open, and how to go on with it or past it."""
    if turn.task is None:
        return
    wording = wording_for(turn.task.prompt)
    command = [as_called(), "ask"]
    if caller.agent_address != os.environ.get("ASKBACK_AGENT_ADDRESS", AGENT_ADDRESS):
        command += ["--address", caller.agent_address]
    command += ["--user", caller.user, "--session", turn.session_id]
    anew = [*command, *(["--collection", caller.collection] if caller.collection else []), "--new"]
    lines = (
        "",
        wording.open.format(task=turn.task.task_id),
        f"  {shlex.join([*command, '--answers', turn.task.task_id])} ANSWER",
        wording.something_else,
        f"  {shlex.join(anew)} QUESTION",
    )
    for line in lines:
        console.print(printable(line), style="dim", markup=False, emoji=False, highlight=False, soft_wrap=True)


def interactive() -> bool:
    """Whether someone is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()
