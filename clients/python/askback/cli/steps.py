"""The steps of a retrieval: a tree that grows in a terminal, plain lines elsewhere."""

from typing import Protocol

from rich.cells import set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from askback.agent.v1 import chat_pb2
from askback.cli.printable import printable


class StepsView(Protocol):
    """Where steps are shown, one by one, until the view is closed; a closed one begins anew."""

    def wait(self) -> None:
        """Something is under way, and there is no step to show yet."""

    def add(self, step: chat_pb2.RagStep) -> None: ...

    def close(self) -> None: ...


class LiveSteps:
    """A tree with a branch for each sub-question, drawn over while it grows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tree = _new_tree()
        self._branches: dict[str, Tree] = {}
        self._live: Live | None = None

    def wait(self) -> None:
        self._draw()

    def add(self, step: chat_pb2.RagStep) -> None:
        parent = self._tree
        if step.group:
            if step.group not in self._branches:
                title = Text.assemble((f"{printable(step.group)} ", "bold cyan"), printable(step.group_label))
                self._branches[step.group] = self._tree.add(title)
            parent = self._branches[step.group]
        parent.add(_step_line(step))
        self._draw()

    def close(self) -> None:
        if self._live is None:
            return
        live, self._live = self._live, None
        # What stays on the screen is the tree alone; one that never got a step leaves nothing behind.
        live.transient = not self._tree.children
        live.update(self._tree if self._tree.children else Text(""))
        live.stop()
        self._tree, self._branches = _new_tree(), {}

    def _draw(self) -> None:
        spinner = Spinner("dots", style="dim")
        shown: RenderableType = Group(self._tree, spinner) if self._tree.children else spinner
        if self._live is None:
            self._live = Live(
                shown, console=self._console, refresh_per_second=10, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start(refresh=True)
        else:
            self._live.update(shown, refresh=True)


class PlainSteps:
    """One line for each step: its time, its sub-question's number, what it does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._groups: set[str] = set()

    def wait(self) -> None:
        pass

    def add(self, step: chat_pb2.RagStep) -> None:
        group = ""
        if step.group:
            group = f"[{printable(step.group)}] "
            if step.group not in self._groups:
                self._groups.add(step.group)
                self._line(f"{'':>10}  {group}{printable(step.group_label)}")
        detail = f": {printable(step.detail)}" if step.detail else ""
        icon = f"{_icon(step)} " if step.icon else ""
        self._line(f"{_time(step):>10}  {group}{icon}{printable(step.label)}{detail}")

    def close(self) -> None:
        self._groups.clear()

    def _line(self, text: str) -> None:
        self._console.print(text.replace("\n", " "), markup=False, emoji=False, highlight=False, soft_wrap=True)


def _new_tree() -> Tree:
    return Tree("", hide_root=True, guide_style="dim")


def _step_line(step: chat_pb2.RagStep) -> Table:
    line = Table.grid(expand=True, padding=(0, 1, 0, 0))
    line.add_column(width=2)
    line.add_column(ratio=1, overflow="fold")
    line.add_column(justify="right", no_wrap=True, min_width=9)
    text = Text(printable(step.label))
    if step.detail:
        text.append("  " + printable(step.detail), style="dim")
    line.add_row(Text(_icon(step)), text, Text(_time(step), style="dim"))
    return line


def _icon(step: chat_pb2.RagStep) -> str:
    """Two cells wide everywhere: terminals differ on how wide a variation selector makes its character."""
    return set_cell_size(printable(step.icon).replace("\ufe0f", ""), 2)


def _time(step: chat_pb2.RagStep) -> str:
    return f"{step.elapsed_ms:,} ms"
