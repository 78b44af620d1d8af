"""The options that commands share."""

import getpass
from typing import Annotated

import typer

from askback.client.channel import target_of


def operating_system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return "local"


def usable_address(address: str) -> str:
    try:
        target_of(address)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return address


User = Annotated[
    str,
    typer.Option(
        "--user",
        envvar="ASKBACK_USER",
        default_factory=operating_system_user,
        show_default="the user of the operating system",
        help="Who asks.",
    ),
]
Address = Annotated[
    str,
    typer.Option(
        "--address", envvar="ASKBACK_AGENT_ADDRESS", callback=usable_address, help="Where the agent service listens."
    ),
]
StorageAddress = Annotated[
    str,
    typer.Option(
        "--storage-address",
        envvar="ASKBACK_STORAGE_ADDRESS",
        callback=usable_address,
        help="Where the storage service listens.",
    ),
]
Session = Annotated[
    str, typer.Option("--session", help="The session to go on with; without it, a new one.", show_default=False)
]
CollectionName = Annotated[
    str, typer.Option("--collection", help="Which documents; without it, the service's default.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line (proto-JSON), and nothing else.")]

AGENT_ADDRESS = "127.0.0.1:50051"
STORAGE_ADDRESS = "127.0.0.1:50052"
