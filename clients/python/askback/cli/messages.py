"""One stored message, as people read it."""

from rich.console import Console
from rich.text import Text

from askback.cli.citations import citation_lines
from askback.cli.output import local_time, print_line
from askback.cli.printable import printable
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


def print_message(console: Console, message: session_pb2.Message, *, in_detail: bool = False) -> None:
    """Its place, who said it and when, its words and what they cite; in detail that it is complete, and its trace, too.

    A question back and a message cut short always say so.
    """
    title = Text.assemble(
        (f"{message.position} ", "dim"),
        (_SPEAKERS.get(message.type, "?"), "bold"),
        (f"  {local_time(message.create_time)}", "dim"),
    )
    if status := _STATUSES.get(message.status):
        title.append(f"  {status}", style="yellow")
    elif in_detail and message.status == session_pb2.MESSAGE_STATUS_COMPLETE:
        title.append("  complete", style="dim")
    if in_detail and message.HasField("rag_trace"):
        title.append(f"  trace of {len(message.rag_trace.timings)} stages", style="dim")
    console.print(title, soft_wrap=True)
    console.print(Text(printable(message.content)), soft_wrap=not console.is_terminal)
    for line in citation_lines(message.content, message.rag_trace.retrieved_chunks):
        print_line(console, line, style="cyan")
    console.print()
