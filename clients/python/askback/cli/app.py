"""The commands that ask, and the command line as a whole."""

import io
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from askback.cli import documents, kept
from askback.cli.conversation import (
    Caller,
    Turn,
    Way,
    interactive,
    picked,
    read_answer,
    read_line,
    take_turn,
    task_to_answer,
    tell_open,
    way_of,
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
from askback.cli.output import as_called
from askback.rag.v1 import hitl_pb2

app = typer.Typer(
    help="Ask the documents of an Askback system, and answer when it asks back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        typer.echo(f"askback {version('askback-client')}")
    except PackageNotFoundError:
        # It runs from its sources, which have no version of their own.
        typer.echo("askback, not installed")
    raise typer.Exit


@app.callback()
def options_before_the_command(
    _version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="The question; with --answers, the answer.")],
    user: User,
    session: Session = "",
    answers: Annotated[
        str, typer.Option("--answers", metavar="TASK", help="The open question that this answers; a number picks.")
    ] = "",
    new: Annotated[
        bool, typer.Option("--new", help="A new question: one that waits in the session is withdrawn, not answered.")
    ] = False,
    collection: CollectionName = "",
    address: Address = AGENT_ADDRESS,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Ask one question, and answer where the agent asks back.

    Where nobody is there to answer, an open question is printed with its options and its id. The next
    message in its session answers it, unless --new says otherwise.
    """
    caller = Caller(user, address, storage_address, collection, as_json)
    console = Console(highlight=False)
    if not question.strip():
        _refuse("the question is empty")
    if answers and new:
        _refuse("--answers and --new exclude each other: an answer, or a new question")
    if answers and (not session or question.strip().isdecimal()):
        task = run(task_to_answer(caller, answers))
        session = session or task.session_id
        try:
            question = picked(question, task)
        except UsageFault as fault:
            _refuse(str(fault))
    turn = run(take_turn(caller, console, message=question, session_id=session, answers=answers, replaces=new))
    _answer_back(caller, console, turn, in_chat=False)


@app.command()
def chat(
    user: User,
    session: Session = "",
    collection: CollectionName = "",
    address: Address = AGENT_ADDRESS,
    storage_address: StorageAddress = STORAGE_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Ask question after question in one session.

    An answer left empty leaves a question back open, and what is said next answers it; after /skip the next
    question takes its place. quit, exit and Ctrl-D end it.
    """
    caller = Caller(user, address, storage_address, collection, as_json)
    console = Console(highlight=False)
    shows = interactive() and not as_json
    turn = Turn(session_id=session, task=None)
    way: Way | None = None
    while way is not Way.END and (words := _read("ask > " if shows else "")) is not None:
        said = way_of(words)
        if said is not None:
            way = way if said is Way.LATER else said
            if said is Way.SKIP and shows:
                typer.secho("your next question takes the place of one that waits", dim=True)
            continue
        skips = way is Way.SKIP
        answered = None if skips else turn.task
        try:
            message = picked(words, answered) if answered is not None else words
        except UsageFault as fault:
            tell(fault)
            continue
        answers = answered.task_id if answered is not None else ""
        turn = run(
            take_turn(caller, console, message=message, session_id=turn.session_id, answers=answers, replaces=skips)
        )
        turn, way = _answer_back(caller, console, turn, in_chat=True)
        if shows:
            typer.echo()
    if turn.session_id and shows:
        typer.echo(shlex.join([as_called(), "chat", "--user", user, "--session", turn.session_id]) + " goes on with it")


def _answer_back(caller: Caller, console: Console, turn: Turn, *, in_chat: bool) -> tuple[Turn, Way | None]:
    """Has the user answer as long as the agent asks back; what stays open is told."""
    while turn.task is not None and not caller.as_json:
        answer = _read_answer(turn.task, in_chat=in_chat) if interactive() else Way.LATER
        if isinstance(answer, Way):
            if answer is not Way.SKIP:
                tell_open(console, caller, turn)
            return turn, answer
        turn = run(take_turn(caller, console, message=answer, session_id=turn.session_id, answers=turn.task.task_id))
    return turn, None


def _read(prompt: str) -> str | None:
    try:
        return read_line(prompt)
    except KeyboardInterrupt:
        typer.echo()
        raise typer.Exit(INTERRUPTED) from None


def _read_answer(task: hitl_pb2.HitlTask, *, in_chat: bool) -> str | Way:
    try:
        return read_answer(task, in_chat=in_chat)
    except KeyboardInterrupt:
        typer.echo()
        raise typer.Exit(INTERRUPTED) from None


def _refuse(text: str) -> NoReturn:
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
