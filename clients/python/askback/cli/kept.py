"""The commands about what is kept: sessions, history, tasks, delete."""

import sys
from contextlib import AbstractAsyncContextManager
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from askback.cli.citations import citation_lines
from askback.cli.failures import reach, run
from askback.cli.options import STORAGE_ADDRESS, AsJson, StorageAddress, User
from askback.cli.output import local_time, print_json, print_rows
from askback.cli.printable import printable
from askback.client.storage import StorageClient
from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import session_pb2

_SPEAKERS = {
    session_pb2.MESSAGE_TYPE_HUMAN: "you",
    session_pb2.MESSAGE_TYPE_AI: "agent",
    session_pb2.MESSAGE_TYPE_SYSTEM: "system",
    session_pb2.MESSAGE_TYPE_TOOL: "tool",
}
_STATUSES = {
    session_pb2.MESSAGE_STATUS_STOPPED: "stopped",
    session_pb2.MESSAGE_STATUS_FAILED: "failed",
    session_pb2.MESSAGE_STATUS_AWAITING_INPUT: "asks back",
}

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


def register(app: typer.Typer) -> None:
    app.command()(sessions)
    app.command()(history)
    app.command()(tasks)
    app.command()(delete)


def sessions(user: User, storage_address: StorageAddress = STORAGE_ADDRESS, as_json: AsJson = False) -> None:
    """List your sessions, the last changed first."""
    run(_sessions(user, storage_address, as_json))


async def _sessions(user: str, address: str, as_json: bool) -> None:
    rows: list[tuple[str, ...]] = []
    async with _storage(address) as storage:
        async for session in storage.sessions(user_id=user):
            if as_json:
                print_json(session)
                continue
            state = "asks back" if session.pending_hitl_task_id else "at work" if session.active_run_id else ""
            count = str(session.message_count)
            rows.append((session.session_id, session.title, count, local_time(session.update_time), state))
    print_rows(Console(highlight=False), ("session", "title", "messages", "changed", ""), rows)


def history(
    session: SessionId, user: User, storage_address: StorageAddress = STORAGE_ADDRESS, as_json: AsJson = False
) -> None:
    """Show a session's messages, oldest first, with what they cite."""
    run(_history(user, session, storage_address, as_json))


async def _history(user: str, session_id: str, address: str, as_json: bool) -> None:
    console = Console(highlight=False)
    async with _storage(address) as storage:
        async for message in storage.messages(user_id=user, session_id=session_id):
            if as_json:
                print_json(message)
            else:
                _print_message(console, message)


def _print_message(console: Console, message: session_pb2.Message) -> None:
    title = Text.assemble(
        (f"{message.position} ", "dim"),
        (_SPEAKERS.get(message.type, "?"), "bold"),
        (f"  {local_time(message.create_time)}", "dim"),
    )
    if status := _STATUSES.get(message.status):
        title.append(f"  {status}", style="yellow")
    console.print(title, soft_wrap=True)
    console.print(Text(printable(message.content)), soft_wrap=not console.is_terminal)
    for line in citation_lines(message.content, message.rag_trace.retrieved_chunks):
        console.print(Text(line, style="cyan"), soft_wrap=True)
    console.print()


def tasks(
    user: User,
    session: Annotated[str, typer.Option("--session", help="Of one session alone.", show_default=False)] = "",
    show_all: Annotated[bool, typer.Option("--all", help="The settled ones too.")] = False,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the questions that wait for your answer, oldest first."""
    run(_tasks(user, session, show_all, storage_address, as_json))


async def _tasks(user: str, session_id: str, show_all: bool, address: str, as_json: bool) -> None:
    rows: list[tuple[str, ...]] = []
    state = "" if show_all else "PENDING"
    async with _storage(address) as storage:
        async for task in storage.hitl_tasks(user_id=user, session_id=session_id, state=state):
            if as_json:
                print_json(task)
                continue
            options = " ".join(f"{number}. {option}" for number, option in enumerate(task.options, start=1))
            name = hitl_pb2.HitlState.Name(task.state).removeprefix("HITL_STATE_").lower()
            rows.append((task.task_id, task.session_id, name, f"{task.prompt} {options}".strip()))
    print_rows(Console(highlight=False), ("task", "session", "state", "question"), rows)


def delete(
    session: SessionId,
    user: User,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking first.")] = False,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Delete a session with its messages, runs and questions."""
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Delete session {printable(session)} for good?", abort=True)
    run(_delete(user, session, storage_address, as_json))


async def _delete(user: str, session_id: str, address: str, as_json: bool) -> None:
    async with _storage(address) as storage:
        response = await storage.delete_session(user_id=user, session_id=session_id)
    if as_json:
        print_json(response)
    else:
        typer.echo(f"deleted {printable(response.session_id)} with {response.deleted_message_count} messages")


def _storage(address: str) -> AbstractAsyncContextManager[StorageClient]:
    return reach(StorageClient(address), service="storage service", setting="ASKBACK_STORAGE_ADDRESS")
