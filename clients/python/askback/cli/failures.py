"""How a command ends: its exit code, and one or two lines of why."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import typer

from askback.cli.printable import printable
from askback.client.channel import ServiceClient
from askback.client.errors import (
    AskbackError,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    NotFound,
    Unavailable,
)

FAULT = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
UNAVAILABLE = 5
INTERRUPTED = 130

ResultT = TypeVar("ResultT")
ClientT = TypeVar("ClientT", bound=ServiceClient)


class Unreachable(Exception):
    """No connection to a service, or it broke off."""

    def __init__(self, service: str, address: str, setting: str) -> None:
        super().__init__(f"no connection to the {service} at {address}")
        self.setting = setting


class UsageFault(Exception):
    """What was asked for makes no sense; found before any service was asked."""


@asynccontextmanager
async def reach(client: ClientT, *, service: str, setting: str) -> AsyncIterator[ClientT]:
    """The client, open; a connection that fails is told with its address."""
    try:
        async with client:
            yield client
    except Unavailable as error:
        if error.reason:
            raise
        raise Unreachable(service, client.address, setting) from error


def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a command's work; a failure is printed and becomes the command's exit code."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except (AskbackError, Unreachable, UsageFault, OSError) as error:
        if isinstance(error, OSError) and error.filename is None:
            # Not a file that was named: standard output is gone, for one.
            raise
        tell(error)
        raise typer.Exit(exit_code(error)) from error


def tell(error: Exception) -> None:
    for line in lines_of(error):
        typer.echo(f"askback: {printable(line)}", err=True)


def lines_of(error: Exception) -> list[str]:
    if isinstance(error, Unreachable):
        return [str(error), f"`make run` starts the whole system here; {error.setting} names another address"]
    if isinstance(error, OSError):
        return [f"{error.filename}: {error.strerror}"]
    if not isinstance(error, AskbackError):
        return [str(error)]
    reason = error.reason or error.code.name
    if error.field_violations:
        fields = "; ".join(f"{violation.field}: {violation.description}" for violation in error.field_violations)
        return [f"{reason}: {fields}"]
    lines = [f"{reason}: {error.message}"]
    if error.retry_after is not None:
        lines.append(f"it may work in {error.retry_after:g} s")
    return lines


def plain_words(error: AskbackError) -> str:
    """Why, for a person who knows nothing of the API's fields and reasons."""
    return "; ".join(f"it takes {violation.description}" for violation in error.field_violations) or error.message


def exit_code(error: Exception) -> int:
    match error:
        case UsageFault() | InvalidArgument() | OSError():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case Unreachable() | Unavailable() | DeadlineExceeded() | Cancelled():
            return UNAVAILABLE
        case Internal() | DataLoss():
            return FAULT
        case _:
            return REFUSED
