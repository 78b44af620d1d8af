"""What each subject can do. The standard library alone: peers live in an environment of their own."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from benchmarks.material import SessionSet

APPEND, NEWEST, WHOLE, LIST = "append", "newest", "whole", "list"

CONNECTIONS = 10
"""To PostgreSQL, for each subject alike: all of them together stay below the server's limit."""


@dataclass(frozen=True)
class Where:
    """How a subject is reached."""

    database_url: str = ""
    address: str = ""


class Subject(Protocol):
    """One way of keeping conversations."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the packages that make it what it is."""

    async def fill(self, sessions: SessionSet) -> None:
        """Stores the set's sessions, in the quickest way that leaves what its own calls would have left."""

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        """Adds one turn to the end of a session: two messages, the answer with its trace."""

    async def newest(self, sessions: SessionSet, session: int) -> None:
        """Reads the newest 100 messages with their traces."""

    async def whole(self, sessions: SessionSet, session: int) -> None:
        """Reads all messages with their traces."""


@runtime_checkable
class ListsSessions(Protocol):
    """A subject that can list a user's sessions page by page; ours alone is measured at it."""

    async def list_sessions(self, sessions: SessionSet, session: int) -> None:
        """Reads the first page of the list of the session's user."""


OpenSubject = Callable[[Where], AbstractAsyncContextManager[Subject]]


def postgres_url(url: str, *, driver: str) -> str:
    """The address as SQLAlchemy wants it, with the driver in its scheme."""
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)
