"""ASKBACK_HOME: the folder of one local system, held by one process at a time."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.local.errors import LocalError


@dataclass(frozen=True)
class Home:
    """Where everything of one local system lies."""

    path: Path

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def postgres_password(self) -> Path:
        return self.path / "postgres-password"

    @property
    def valkey(self) -> Path:
        return self.path / "valkey"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def examples_ingested(self) -> Path:
        """Exists once the example documents were ingested."""
        return self.path / "examples-ingested"


@contextmanager
def held_home(path: Path) -> Iterator[Home]:
    """Makes the folder if need be and holds it; LocalError names the process that holds it already.

    The lock is the kernel's: it ends with its holder, however that ends, so there is no stale one. The pid
    in the file is for people.
    """
    path = path.expanduser().absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() == 0 and sys.platform != "linux":
            # The servers run as another user, which has to pass through here.
            path.chmod(path.stat().st_mode | 0o011)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LocalError(
            f"ASKBACK_HOME: {path} cannot be used ({error.strerror}); name a folder that you may write to"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            holder = f"process {pid}" if pid else "another process that is just starting"
            raise LocalError(
                f"ASKBACK_HOME: {path} is held by {holder}; stop it, or set ASKBACK_HOME to another folder"
            ) from None
        except OSError as error:
            raise LocalError(f"ASKBACK_HOME: {path} cannot be locked ({error.strerror}); name a local folder") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        home = Home(path.resolve())
        home.logs.mkdir(mode=0o700, exist_ok=True)
        try:
            yield home
        finally:
            os.ftruncate(lock, 0)
    finally:
        os.close(lock)
