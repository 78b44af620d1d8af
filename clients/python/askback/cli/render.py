"""One turn of the agent, drawn as its events come."""

from types import TracebackType

from rich.console import Console
from rich.text import Text

from askback.agent.v1 import chat_pb2
from askback.cli.citations import CITATION, citation_lines
from askback.cli.output import print_line
from askback.cli.printable import printable
from askback.cli.steps import LiveSteps, PlainSteps, StepsView
from askback.cli.wrapping import UnwrappedText, WrappedText
from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2

# Longer lines are hard to read.
_TEXT_WIDTH = 100


class TurnRenderer:
    """Draws a turn: `event()` for each ChatEvent; `finished` closes it, `close()` where there was none.

    In a terminal, steps grow as a tree and text is wrapped; elsewhere there are plain lines, without
    colour. Control characters in what others wrote are left out. What it has seen of the turn can be
    read afterwards: `run_id`, `session_id`, `text`, `trace`, `task`, `finished`.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._draws = console.is_terminal and not console.is_dumb_terminal
        self._steps: StepsView = LiveSteps(console) if self._draws else PlainSteps(console)
        self._writer: WrappedText | UnwrappedText | None = None
        self.run_id = ""
        self.session_id = ""
        self.text = ""
        self.trace: trace_pb2.RagTrace | None = None
        self.task: hitl_pb2.HitlTask | None = None
        self.finished: chat_pb2.RunFinished | None = None

    def __enter__(self) -> "TurnRenderer":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def event(self, event: chat_pb2.ChatEvent) -> None:
        """Draws one event; kinds that it does not know are passed over."""
        self.run_id = event.run_id or self.run_id
        match event.WhichOneof("event"):
            case "started":
                self.session_id = event.started.session_id
                self._steps.wait()
            case "queued":
                self._note(f"waiting: {event.queued.ahead} before this one")
            case "joined":
                self._note("this request has begun before; from its first event:")
            case "rag_step":
                self._end_text()
                self._steps.add(event.rag_step)
            case "content":
                self._add_text(event.content.text)
            case "compacted":
                self._end_text()
                self.text = ""
                self._note("the events up to here are no longer kept; the text so far:")
                self._add_text(event.compacted.reply_text)
            case "rag_trace":
                self.trace = event.rag_trace
            case "hitl_request":
                self.close()
                self.task = event.hitl_request
                self._draw_task(event.hitl_request)
            case "finished":
                self.close()
                self.finished = event.finished
                self._draw_end(event.finished)

    def close(self) -> None:
        """Ends what is being drawn, as it stands."""
        self._end_text()
        self._steps.close()

    def _add_text(self, piece: str) -> None:
        if not piece:
            return
        self.text += piece
        if self._writer is None:
            self._steps.close()
            self._line("")
            if self._draws:
                self._writer = WrappedText(self._write, width=min(self._console.width - 2, _TEXT_WIDTH))
            else:
                self._writer = UnwrappedText(self._write)
        if shown := printable(piece):
            self._writer.feed(shown)

    def _end_text(self) -> None:
        if self._writer is not None:
            self._writer.finish()
            self._writer = None

    def _draw_task(self, task: hitl_pb2.HitlTask) -> None:
        self._line("")
        self._line(printable(task.prompt), style="bold")
        for number, option in enumerate(task.options, start=1):
            self._line(f"  {number}. {printable(option)}")

    def _draw_end(self, finished: chat_pb2.RunFinished) -> None:
        if self.text and self.trace is not None and self.trace.retrieved_chunks:
            lines = list(citation_lines(self.text, self.trace.retrieved_chunks))
            self._line("")
            for line in lines:
                print_line(self._console, line, style="cyan")
            self._line(f"cites {len(lines)} of {_pieces(len(self.trace.retrieved_chunks))} of evidence", style="dim")
        if finished.status == run_pb2.RUN_STATUS_CANCELLED:
            self._line("stopped; what was said so far is kept", style="yellow")
        elif finished.status == run_pb2.RUN_STATUS_FAILED and self.text:
            self._line("cut short by a failure; what was said so far is kept", style="yellow")

    def _note(self, text: str) -> None:
        self.close()
        self._line(text, style="dim")

    def _line(self, text: str, *, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=not self._draws, highlight=False)

    def _write(self, text: str) -> None:
        shown = Text(text)
        shown.highlight_regex(CITATION, "cyan")
        self._console.print(shown, end="", soft_wrap=True, highlight=False)
        self._console.file.flush()


def _pieces(count: int) -> str:
    return "1 piece" if count == 1 else f"{count} pieces"
