"""Where commands print: JSON lines, tables in a terminal, tab-separated lines elsewhere."""

from collections.abc import Iterable, Sequence
from datetime import timezone

import typer
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from askback.cli.printable import printable


def print_json(message: Message) -> None:
    """One proto-JSON object on one line."""
    typer.echo(MessageToJson(message, indent=None, ensure_ascii=False))


def print_rows(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The rows as a table in a terminal; elsewhere one line each, with tabs between."""
    if not console.is_terminal:
        for row in rows:
            typer.echo("\t".join(" ".join(printable(cell).split()) for cell in row))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    if table.row_count:
        console.print(table)


def local_time(timestamp: Timestamp) -> str:
    """The time in the local zone, to the minute."""
    return timestamp.ToDatetime(timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")


def size(count: int) -> str:
    return f"{count / 1024:,.1f} KiB" if count >= 1024 else f"{count} B"
