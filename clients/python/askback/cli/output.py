"""Where commands print: JSON lines, tables in a terminal, tab-separated lines elsewhere."""

import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import timezone
from pathlib import Path

import typer
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from askback.cli.printable import printable

PROGRAM = "askback"
_GAP = 2
_LEAST_WIDTH = 8


def as_called() -> str:
    """How this command is called from here: its name where that is on the PATH, else the file that was run."""
    called = Path(sys.argv[0])
    if called.name != PROGRAM or shutil.which(PROGRAM):
        return PROGRAM
    here = Path.cwd()
    return str(called.relative_to(here)) if called.is_relative_to(here) else str(called)


def print_json(message: Message) -> None:
    """One proto-JSON object on one line."""
    typer.echo(MessageToJson(message, indent=None, ensure_ascii=False))


def print_line(console: Console, text: str, *, style: str = "") -> None:
    """One line: cut to the width of a terminal, whole elsewhere."""
    cuts = console.is_terminal and not console.is_dumb_terminal
    shown = Text(" ".join(text.splitlines()), style=style)
    if cuts:
        shown.truncate(console.width, overflow="ellipsis")
    console.print(shown, soft_wrap=True, highlight=False)


def print_tabbed(cells: Iterable[str]) -> None:
    typer.echo("\t".join(" ".join(printable(cell).split()) for cell in cells))


def print_rows(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, cut: str, nothing: str
) -> None:
    """The rows as a table in a terminal; elsewhere one line each, with tabs between.

    In a terminal the column `cut` has the width that the others leave, columns without a word in them are left
    out, and `nothing` is said where there are no rows.
    """
    if not console.is_terminal:
        for row in rows:
            print_tabbed(row)
        return
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    if not cells:
        console.print(nothing, style="dim")
        return
    filled = [number for number in range(len(columns)) if any(row[number] for row in cells)]
    widths = {number: max(cell_len(columns[number]), *(cell_len(row[number]) for row in cells)) for number in filled}
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for number in filled:
        width = widths[number]
        if columns[number] == cut:
            others = sum(width + _GAP for other, width in widths.items() if other != number)
            width = min(width, max(console.width - others, _LEAST_WIDTH))
        table.add_column(columns[number], width=width, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*(Text(row[number]) for number in filled))
    console.print(table)


def local_time(timestamp: Timestamp) -> str:
    """The time in the local zone, to the minute."""
    return timestamp.ToDatetime(timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")


def size(count: int) -> str:
    return f"{count / 1024:,.1f} KiB" if count >= 1024 else f"{count} B"
