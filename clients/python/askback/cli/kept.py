"""The commands about what is kept: sessions, history, tasks, delete."""

import sys
from contextlib import AbstractAsyncContextManager
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from askback.cli.failures import USAGE, UsageFault, reach, run, tell
from askback.cli.messages import print_message
from askback.cli.options import STORAGE_ADDRESS, AsJson, StorageAddress, User
from askback.cli.output import local_time, print_json, print_rows, print_tabbed
from askback.cli.printable import printable
from askback.client.storage import StorageClient
from askback.rag.v1 import hitl_pb2

_SESSIONS_IN_A_TERMINAL = 20

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


def register(app: typer.Typer) -> None:
    app.command()(sessions)
    app.command()(history)
    app.command()(tasks)
    app.command()(delete)


def sessions(
    user: User,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="At most this many.", show_default="20 in a terminal, elsewhere all"),
    ] = None,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List your sessions, the last changed first."""
    console = Console(highlight=False)
    if limit is None and console.is_terminal and not as_json:
        limit = _SESSIONS_IN_A_TERMINAL
    run(_sessions(console, user, limit, storage_address, as_json))


async def _sessions(console: Console, user: str, limit: int | None, address: str, as_json: bool) -> None:
    rows: list[tuple[str, ...]] = []
    count, more = 0, False
    async with _storage(address) as storage:
        # One more than is shown tells whether there are more; a page too large is lowered by the service.
        async for session in storage.sessions(user_id=user, page_size=0 if limit is None else min(limit + 1, 1000)):
            if more := count == limit:
                break
            count += 1
            if as_json:
                print_json(session)
                continue
            state = "asks back" if session.pending_hitl_task_id else "at work" if session.active_run_id else ""
            messages = str(session.message_count)
            rows.append((session.session_id, session.title, messages, local_time(session.update_time), state))
    if as_json:
        return
    columns = ("session", "title", "msgs", "changed", "state")
    print_rows(console, columns, rows, cut="title", nothing="no session yet")
    if more and console.is_terminal:
        console.print(f"and more: --limit {count * 2} shows up to {count * 2}", style="dim")


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
                print_message(console, message)


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
    console = Console(highlight=False)
    found: list[hitl_pb2.HitlTask] = []
    state = "" if show_all else "PENDING"
    async with _storage(address) as storage:
        async for task in storage.hitl_tasks(user_id=user, session_id=session_id, state=state):
            if as_json:
                print_json(task)
            else:
                found.append(task)
    for task in found:
        _print_task(console, task)
    if not found and not as_json and console.is_terminal:
        console.print("no question" if show_all else "no question waits for your answer", style="dim")


def _print_task(console: Console, task: hitl_pb2.HitlTask) -> None:
    options = [f"{number}. {option}" for number, option in enumerate(task.options, start=1)]
    state = hitl_pb2.HitlState.Name(task.state).removeprefix("HITL_STATE_").lower()
    if not console.is_terminal:
        print_tabbed((task.task_id, task.session_id, state, " ".join((task.prompt, *options))))
        return
    # Ids are there to be copied: each stands whole on its line.
    title = Text.assemble((printable(task.task_id), "bold"), (f"  {state}", "yellow"))
    console.print(title, soft_wrap=True)
    console.print(Text(f"session {printable(task.session_id)}", style="dim"), soft_wrap=True)
    for line in (task.prompt, *(f"  {option}" for option in options)):
        console.print(Text(printable(line)))
    console.print()


def delete(
    session: SessionId,
    user: User,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking first.")] = False,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Delete a session with its messages, runs and questions."""
    if not yes:
        if not sys.stdin.isatty():
            tell(UsageFault("nobody is there to be asked whether to delete for good; say --yes"))
            raise typer.Exit(USAGE)
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
