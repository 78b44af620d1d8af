"""An embedded PostgreSQL: its folder, its first start, and the server itself."""

import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil

from services.local.accounts import Account, check_that_we_have_a_name, make_private_folder, server_account
from services.local.binaries import PostgresBinaries
from services.local.errors import LocalError, StartFailed
from services.local.ports import LOOPBACK, free_port
from services.local.process import Command, Report, Service, run_to_end
from services.local.reach import SHARED_FOLDERS, reachable_postgres

USER = "askback"
STOPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0))
START_WITHIN_S = 60.0
PORT_ATTEMPTS = 5

SMALL_MACHINE = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    # Parallel workers share memory through /dev/shm, of which a container may have 64 MiB.
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A statement, or the detail of an error, can hold what a user wrote.
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
# For tests: a killed server loses nothing that it had committed, a machine without power may lose all.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    port: int
    password: str
    service: Service

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self.port}/{database}"


@asynccontextmanager
async def running_postgres(
    *,
    data: Path,
    password_file: Path,
    log: Path,
    binaries: PostgresBinaries,
    databases: Sequence[str] = (),
    durable: bool = True,
    copies: Sequence[Path] = SHARED_FOLDERS,
    report: Report,
) -> AsyncIterator[Postgres]:
    """A server on the data folder, which is made on the first start; the caller holds the folder's lock.

    `copies` are where binaries may be copied to that the server's user cannot reach.
    """
    account = server_account(data)
    binaries = reachable_postgres(binaries, account, copies=copies)
    folder = _DataFolder(data, password_file, log, binaries, account)
    password = await folder.prepare(durable=durable, report=report)
    postgres = await _started(folder, password, durable=durable, report=report)
    try:
        await _ensure_databases(postgres, databases)
        yield postgres
    finally:
        await postgres.service.stop()


async def _started(folder: "_DataFolder", password: str, *, durable: bool, report: Report) -> Postgres:
    for attempt in range(1, PORT_ATTEMPTS + 1):
        port = free_port()
        service = Service(
            folder.serve(port, durable=durable),
            ready=folder.is_ready,
            ready_within_s=START_WITHIN_S,
            report=report,
            before_start=folder.settle,
        )
        try:
            await service.start()
        except StartFailed as error:
            # Between the choice of a port and its use another program can take it.
            if attempt == PORT_ATTEMPTS or "could not bind" not in error.log_tail:
                raise
        else:
            return Postgres(port, password, service)
    raise AssertionError("the last attempt returns or raises")


async def _ensure_databases(postgres: Postgres, databases: Sequence[str]) -> None:
    if not databases:
        return
    connection = await asyncpg.connect(postgres.url("postgres"))
    try:
        present = {row["datname"] for row in await connection.fetch("SELECT datname FROM pg_database")}
        for database in databases:
            if database not in present:
                await connection.execute(f'CREATE DATABASE "{database}"')
    finally:
        await connection.close()


class _DataFolder:
    """The files of one server, and what to do with them before it starts."""

    def __init__(self, data: Path, password_file: Path, log: Path, binaries: PostgresBinaries, account: Account | None):
        self._data = data
        self._password_file = password_file
        self._log = log
        self._binaries = binaries
        self._account = account

    async def prepare(self, *, durable: bool, report: Report) -> str:
        """The server's password, after a first start made the folder where there is none."""
        for unfinished in self._data.parent.glob(f"{self._data.name}.new-*"):
            shutil.rmtree(unfinished)
        version = self._data / "PG_VERSION"
        if not version.exists():
            return await self._initialise(durable=durable, report=report)
        major = version.read_text(encoding="ascii").strip()
        if major != str(self._binaries.major):
            raise LocalError(
                f"{self._data} was written by PostgreSQL {major}, and here is {self._binaries.major}: move the folder "
                "away to start afresh, or set ASKBACK_HOME to another one"
            )
        try:
            return self._password_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise LocalError(
                f"{self._password_file} is gone: put it back, or move {self._data} away to start afresh"
            ) from None

    async def _initialise(self, *, durable: bool, report: Report) -> str:
        check_that_we_have_a_name()
        report("Making the database (once)" if durable else "Making the database")
        password = secrets.token_urlsafe(24)
        # Under another name until it is whole, so that what an interrupted start leaves is never taken for data.
        new = Path(tempfile.mkdtemp(prefix=f"{self._data.name}.new-", dir=self._data.parent))
        make_private_folder(new, self._account)
        options = ["-D", self._named(new), "-U", USER, "-E", "UTF8", "--locale=C", "--auth=scram-sha-256"]
        options += ["--pwfile=/dev/stdin"]
        if self._binaries.major >= 17:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if not durable:
            options += ["--no-sync"]
        await run_to_end(
            Command(
                name="initdb",
                argv=[self._binaries.initdb, *options],
                cwd=new,
                log=self._log,
                env=self._environment(),
                account=self._account,
                stdin=f"{password}\n".encode(),
            ),
            within_s=START_WITHIN_S,
        )
        self._adopt(new, password)
        return password

    def _adopt(self, new: Path, password: str) -> None:
        _write_private(self._password_file, f"{password}\n")
        new.rename(self._data)
        descriptor = os.open(self._data.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def serve(self, port: int, *, durable: bool) -> Command:
        settings = SMALL_MACHINE if durable else SMALL_MACHINE | NOT_DURABLE
        settings = settings | {"port": str(port), "listen_addresses": LOOPBACK, "unix_socket_directories": ""}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Command(
            name="PostgreSQL",
            argv=[self._binaries.postgres, "-D", self._named(self._data), *options],
            cwd=self._data,
            log=self._log,
            env=self._environment(),
            account=self._account,
            stops=STOPS,
        )

    async def is_ready(self) -> bool:
        try:
            lines = self._pid_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    async def settle(self) -> None:
        """Waits for what an earlier server left running, ends it where it stays, and clears its pid file.

        A pid file whose number was given to some other program since would keep the server from starting;
        that no server is at work here is known from the processes themselves.
        """
        if not self._pid_file.exists():
            return
        begin = time.monotonic()
        firmer = [(2.0, signal.SIGINT), (10.0, signal.SIGQUIT), (15.0, signal.SIGKILL)]
        while left := _servers_in(self._data):
            waited = time.monotonic() - begin
            if firmer and waited > firmer[0][0]:
                _, number = firmer.pop(0)
                for process in left:
                    with suppress(psutil.NoSuchProcess):
                        process.send_signal(number)
            if waited > 20.0:
                pids = ", ".join(str(process.pid) for process in left)
                raise LocalError(f"An earlier PostgreSQL on {self._data} does not end; end it yourself (pid {pids})")
            await asyncio.sleep(0.05)
        self._pid_file.unlink(missing_ok=True)

    @property
    def _pid_file(self) -> Path:
        return self._data / "postmaster.pid"

    def _named(self, folder: Path) -> str:
        """The folder's name for its server, whose working directory it is.

        Another user may be unable to walk there by its path, while everybody can reach the folder that they
        stand in. So root's data stay in root's closed folder, and the server needs no right beyond its own.
        """
        return "/proc/self/cwd" if self._account is not None and sys.platform == "linux" else str(folder)

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C"}


def _servers_in(data: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name"]):
        if str(process.info["name"]).startswith("postgres"):
            with suppress(psutil.Error):
                if process.cwd() == str(data):
                    found.append(process)
    return found


def _write_private(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, path)
