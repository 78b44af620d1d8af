"""The process that reads documents, one after the other, for its owner (processes.py).

It is told each document by a frame {"ending", "size"} and its bytes. It answers ["document", page count], any
number of ["blocks", …], and ["end"]; or, at any point, ["unreadable", why] or ["failed", what].
"""

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

from services.agent.knowledge.loading.blocks import Block, Unreadable
from services.agent.knowledge.loading.frames import read_exactly, read_frame, write_frame
from services.agent.knowledge.loading.readers import open_document

_REQUEST_BYTES: Final = 1024
_BATCH_CHARACTERS: Final = 64 * 1024
# What a block costs beside its text.
_BLOCK_CHARACTERS: Final = 64


def main() -> None:
    """Serves stdin and stdout until its owner is gone: `worker.py <memory, bytes> <processor time, seconds>`."""
    memory_bytes, processor_s = map(int, sys.argv[1:])
    # A Ctrl-C at the terminal is for the owner, which ends this process when it is done with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, replies = sys.stdin.buffer, _replies()
    _limit_process(memory_bytes)
    write_frame(replies, ["ready"])
    while True:
        try:
            request, _ = read_frame(requests, limit=_REQUEST_BYTES)
        except EOFError:
            return
        _limit_processor(processor_s)
        try:
            for reply in _read(request["ending"], read_exactly(requests, request["size"])):
                write_frame(replies, reply)
        except MemoryError:
            write_frame(replies, ["failed", "MemoryError"])


def _replies() -> BinaryIO:
    """Stdout, to which from now on nothing else can write: a parser's own words would break the frames."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return replies


def _read(ending: str, content: bytes) -> Iterator[list[Any]]:
    try:
        opened = open_document(ending, content)
        del content
        yield ["document", opened.page_count]
        for batch in _batches(opened.blocks):
            yield ["blocks", batch]
        yield ["end"]
    except Unreadable as error:
        yield ["unreadable", str(error)]
    except MemoryError:
        raise
    except Exception as error:
        # Where, and no more: the text of an error may quote the document's.
        yield ["failed", f"{type(error).__name__} {_place_of(error)}"]


def _batches(blocks: Iterable[Block]) -> Iterator[list[tuple[str, int, str]]]:
    batch: list[tuple[str, int, str]] = []
    size = 0
    for block in blocks:
        batch.append((block.text, block.heading_level, block.page_number))
        size += len(block.text) + _BLOCK_CHARACTERS
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    yield batch


def _place_of(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace is not None else ""


if sys.platform == "win32":

    def _limit_process(memory_bytes: int) -> None: ...

    def _limit_processor(seconds: int) -> None: ...

else:
    import resource

    def _limit_process(memory_bytes: int) -> None:
        """No more memory than this, no file written, and no image of it left where it dies."""
        for kind, limit in (
            (resource.RLIMIT_AS, memory_bytes),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
        ):
            _, most = resource.getrlimit(kind)
            limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
            try:
                resource.setrlimit(kind, (limit, limit))
            except (OSError, ValueError):
                # Not every system knows each of them; the owner's own limits hold all the same.
                continue

    def _limit_processor(seconds: int) -> None:
        """So many seconds more: it ends also where its owner was killed and cannot end it."""
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        limit = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


if __name__ == "__main__":
    main()
