"""Documents are read in processes of their own, which whatever a document does to its reader cannot leave."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

import structlog

from services.agent.errors import DocumentUnreadable
from services.agent.knowledge.loading.blocks import Block, LoadedDocument, Unreadable
from services.agent.knowledge.loading.formats import ending_of
from services.agent.knowledge.loading.frames import FrameTooLarge, read_frame, write_frame

_CHECKOUT: Final = Path(__file__).parents[4]
_WORKER: Final = "services.agent.knowledge.loading.worker"
# Nothing else of the environment: it holds addresses and passwords.
_INHERITED: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL")
_FRAME_BYTES: Final = 1024
_WHY_CHARACTERS: Final = 200
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingLimits:
    """What reading one document may take."""

    seconds: float = 20.0
    """From when its process has it, or is started for it."""
    memory_bytes: int = 500 * 1024 * 1024
    """Of the process, where the system can hold it to that."""
    text_bytes: int = 64 * 1024 * 1024
    """Of what is read: twice the largest document, which no change of encoding goes past."""
    documents: int = 100
    """How many a process reads before another takes its place."""


class DocumentReader:
    """Reads documents, some at a time, each in a process that no other document shares meanwhile.

    Processes are started as they are needed and kept. One that a document made fail is never used again.
    """

    def __init__(self, *, at_once: int, limits: ReadingLimits | None = None) -> None:
        self._limits = limits or ReadingLimits()
        self._places = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="read")
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()

    async def read(self, filename: str, content: bytes) -> LoadedDocument:
        """Reads a document as what its name, whose ending must be one of ENDINGS, says it is.

        Raises DocumentUnreadable for content that cannot be read as that within the limits, or holds no text.
        A cancelled call ends its process.
        """
        async with self._places:
            process = self._next_process()
            self._busy.add(process)
            reading = asyncio.get_running_loop().run_in_executor(
                self._threads, process.read, ending_of(filename), content
            )
            try:
                done, _ = await asyncio.wait({reading}, timeout=self._limits.seconds)
                if not done:
                    raise Unreadable(f"reading it takes more than {self._limits.seconds:g} s")
                loaded = reading.result()
            except Unreadable as error:
                await self._end(process, reading)
                raise DocumentUnreadable(filename, str(error)) from None
            except BaseException:
                await self._end(process, reading)
                raise
            finally:
                self._busy.discard(process)
            if process.documents < self._limits.documents:
                self._idle.append(process)
            else:
                process.end()
            return loaded

    def close(self) -> None:
        """Ends all processes; what is being read fails."""
        for process in (*self._idle, *self._busy):
            process.kill()
        for process in self._idle:
            process.end()
        self._idle.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _next_process(self) -> "_Process":
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            process.end()
        return _Process(self._limits)

    @staticmethod
    async def _end(process: "_Process", reading: asyncio.Future[LoadedDocument]) -> None:
        process.kill()
        # Not left to itself: it would hold a thread, and what it raises would go unheard.
        reading.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({reading})


class _Process:
    """One reading process, started by its first document. All but `kill` is for one thread at a time."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._killed = False
        self.documents = 0

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def read(self, ending: str, content: bytes) -> LoadedDocument:
        """Blocks until it is read; raises Unreadable, also where the process dies of it or is killed."""
        self.documents += 1
        try:
            requests, replies = self._pipes()
            try:
                write_frame(requests, {"ending": ending, "size": len(content)})
                requests.write(content)
                requests.flush()
                return self._received(replies)
            except FrameTooLarge:
                raise Unreadable(f"it holds more text than {self._limits.text_bytes // 1024**2} MiB") from None
            except (EOFError, BrokenPipeError):
                raise self._failed(ending, f"exit {self._exit_code()}") from None
            except _Failed as error:
                raise self._failed(ending, str(error)) from None
            except (ValueError, TypeError, LookupError):
                raise self._failed(ending, "malformed") from None
        except BaseException:
            self.end()
            raise

    def kill(self) -> None:
        """Ends the process whatever it does, from any thread; it may not even have been started."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def end(self) -> None:
        """Kills the process, and leaves nothing of it behind."""
        self.kill()
        if self._process is not None:
            # What was not yet sent is no longer wanted.
            with suppress(OSError), self._process:
                pass

    def _pipes(self) -> tuple[BinaryIO, BinaryIO]:
        with self._lock:
            if self._killed:
                raise Unreadable("reading it was ended")
            process = self._process
            is_new = process is None
            if process is None:
                process = self._process = _start(self._limits)
        requests, replies = _binary(process.stdin), _binary(process.stdout)
        if is_new:
            try:
                read_frame(replies, limit=_FRAME_BYTES)
            except EOFError:
                if self._killed:
                    raise Unreadable("reading it was ended") from None
                raise RuntimeError(f"the reading process does not start: exit {self._exit_code()}") from None
        return requests, replies

    def _received(self, replies: BinaryIO) -> LoadedDocument:
        blocks: list[Block] = []
        page_count = 0
        left = self._limits.text_bytes
        while True:
            reply, size = read_frame(replies, limit=max(left, _FRAME_BYTES))
            left -= size
            kind, *told = reply
            if kind == "blocks":
                blocks += [Block(str(text), int(level), str(page)) for text, level, page in told[0]]
            elif kind == "document":
                page_count = int(told[0])
            elif kind == "end":
                return LoadedDocument(blocks, page_count)
            elif kind == "unreadable":
                raise Unreadable(str(told[0])[:_WHY_CHARACTERS])
            else:
                raise _Failed(str(told[0])[:_WHY_CHARACTERS])

    def _failed(self, ending: str, how: str) -> Unreadable:
        if not self._killed:
            _log.warning("knowledge.reading_failed", ending=ending, how=how)
        if how == "MemoryError":
            return Unreadable(f"reading it takes more than {self._limits.memory_bytes // 1024**2} MiB of memory")
        return Unreadable("its reader fails on it: it is broken, or made to be")

    def _exit_code(self) -> int | None:
        if self._process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        return self._process.returncode


class _Failed(Exception):
    """The reader itself came to an error; the text says which."""


def _start(limits: ReadingLimits) -> subprocess.Popen[bytes]:
    """A fresh interpreter: a copy of this process would hold grpc's locks, and not the threads that free them."""
    return subprocess.Popen(
        # -P: what lies in the working folder is never imported.
        [sys.executable, "-P", "-m", _WORKER, str(limits.memory_bytes), str(int(limits.seconds) + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A parser may quote the document in what it complains of.
        stderr=subprocess.DEVNULL,
        cwd=os.path.abspath(os.sep),
        env=_environment(os.environ),
    )


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    paths = [str(_CHECKOUT), *filter(None, [ours.get("PYTHONPATH")])]
    return {name: ours[name] for name in _INHERITED if name in ours} | {
        "PYTHONPATH": os.pathsep.join(paths),
        # Further arenas would take address space, which is what is limited.
        "MALLOC_ARENA_MAX": "1",
    }


def _binary(pipe: IO[bytes] | None) -> BinaryIO:
    # Both of the process's ends are pipes, and buffered.
    return cast(BinaryIO, pipe)
