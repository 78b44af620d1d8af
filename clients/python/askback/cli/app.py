"""The commands that ask, and the command line as a whole."""

import io
import shlex
import sys
from typing import Annotated

import typer
from rich.console import Console

from askback.cli import documents, kept
from askback.cli.conversation import (
    Caller,
    Turn,
    interactive,
    picked,
    read_answer,
    read_line,
    take_turn,
    task_to_answer,
    tell_open,
)
from askback.cli.failures import INTERRUPTED, USAGE, UsageFault, run, tell
from askback.cli.options import (
    AGENT_ADDRESS,
    STORAGE_ADDRESS,
    Address,
    AsJson,
    CollectionName,
    Session,
    StorageAddress,
    User,
)
from askback.rag.v1 import hitl_pb2

app = typer.Typer(
    help="Ask the documents of an Askback system, and answer when it asks back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="The question; with --answers, the answer.")],
    user: User,
    session: Session = "",
    answers: Annotated[
        str, typer.Option("--answers", metavar="TASK", help="The open question that this answers; a number picks.")
    ] = "",
    collection: CollectionName = "",
    address: Address = AGENT_ADDRESS,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Ask one question, and answer where the agent asks back.

    Where nobody is there to answer, an open question is printed with its options and its id.
    """
    caller = Caller(user, address, storage_address, collection, as_json)
    console = Console(highlight=False)
    if not question.strip():
        _refuse("the question is empty")
    if answers and (not session or question.strip().isdecimal()):
        task = run(task_to_answer(caller, answers))
        session, question = session or task.session_id, picked(question, task.options)
    turn = run(take_turn(caller, console, message=question, session_id=session, answers=answers))
    _answer_back(caller, console, turn)


@app.command()
def chat(
    user: User,
    session: Session = "",
    collection: CollectionName = "",
    address: Address = AGENT_ADDRESS,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Ask question after question in one session; Ctrl-D ends it."""
    caller = Caller(user, address, storage_address, collection, as_json)
    console = Console(highlight=False)
    shows = interactive() and not as_json
    turn = Turn(session_id=session, task=None)
    while (words := _read("ask > " if shows else "")) is not None:
        if not words:
            continue
        # A question that was left open is answered by what is said next.
        answers = turn.task.task_id if turn.task is not None else ""
        message = picked(words, turn.task.options) if turn.task is not None else words
        turn = run(take_turn(caller, console, message=message, session_id=turn.session_id, answers=answers))
        turn = _answer_back(caller, console, turn, next_words_answer=True)
        if shows:
            typer.echo()
    if turn.session_id and shows:
        typer.echo(shlex.join(["askback", "chat", "--user", user, "--session", turn.session_id]) + " goes on with it")


def _answer_back(caller: Caller, console: Console, turn: Turn, *, next_words_answer: bool = False) -> Turn:
    """Has the user answer as long as the agent asks back; what stays open is told."""
    while turn.task is not None and not caller.as_json:
        answer = _read_answer(turn.task) if interactive() else None
        if answer is None:
            tell_open(console, caller, turn, next_words_answer=next_words_answer)
            break
        turn = run(take_turn(caller, console, message=answer, session_id=turn.session_id, answers=turn.task.task_id))
    return turn


def _read(prompt: str) -> str | None:
    try:
        return read_line(prompt)
    except KeyboardInterrupt:
        typer.echo()
        raise typer.Exit(INTERRUPTED) from None


def _read_answer(task: hitl_pb2.HitlTask) -> str | None:
    try:
        return read_answer(task)
    except KeyboardInterrupt:
        typer.echo()
        raise typer.Exit(INTERRUPTED) from None


def _refuse(text: str) -> None:
    tell(UsageFault(text))
    raise typer.Exit(USAGE)


documents.register(app)
kept.register(app)


def run_app() -> None:
    """Runs the command line; it ends the process."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # An emoji on a terminal that has none is no reason to fail, nor is a stray byte of input.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if any("\udc80" <= character <= "\udcff" for argument in sys.argv for character in argument):
        tell(UsageFault("an argument is not valid UTF-8"))
        sys.exit(USAGE)
    app(prog_name="askback")
