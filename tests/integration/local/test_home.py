import os
import sys
from pathlib import Path

import psutil
import pytest

from services.local.errors import LocalError
from services.local.home import held_home
from tests.integration.local.running import StartHost, Until


def test_a_second_holder_is_told_who_the_first_is(home: Path) -> None:
    with held_home(home), pytest.raises(LocalError) as refused, held_home(home):
        pass
    assert str(refused.value) == (
        f"ASKBACK_HOME: {home} is held by process {os.getpid()}; stop it, or set ASKBACK_HOME to another folder"
    )


async def test_a_second_start_is_told_the_starter_of_the_first(start_host: StartHost, home: Path) -> None:
    host = await start_host()
    with pytest.raises(LocalError, match=f"is held by process {host.process.pid};"), held_home(home):
        pass


async def test_a_lock_whose_holder_was_killed_is_no_hindrance(start_host: StartHost, home: Path, until: Until) -> None:
    host = await start_host()
    await host.kill()
    assert (home / "lock").read_text().strip() == str(host.process.pid)
    with held_home(home):
        assert (home / "lock").read_text().strip() == str(os.getpid())
    await until(host.gone)


def test_a_home_can_be_held_again_once_it_was_let_go(home: Path) -> None:
    for _ in range(2):
        with held_home(home):
            pass


def test_nobody_else_can_look_into_a_home(home: Path) -> None:
    with held_home(home) as held:
        assert held.path.stat().st_mode & 0o066 == 0
        assert held.logs.stat().st_mode & 0o077 == 0


def test_a_home_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LocalError, match=r"^ASKBACK_HOME: .*cannot be used \(Not a directory\)"),
        held_home(tmp_path / "file" / "home"),
    ):
        pass


def test_children_do_not_keep_a_home_held(home: Path) -> None:
    with held_home(home):
        child = psutil.Popen([sys.executable, "-c", "input()"], stdin=-1)
    try:
        with held_home(home):
            assert child.is_running()
    finally:
        child.communicate(b"\n")
