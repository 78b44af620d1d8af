import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from services.local.home import held_home
from services.local.ports import free_port
from tests.integration.local.running import Until, lives

CHECKOUT = Path(__file__).parents[3]


class StartRun(Protocol):
    """`python -m services.local run` on this test's home and on free ports, unless the settings say otherwise."""

    def __call__(self, **settings: str) -> Coroutine[None, None, asyncio.subprocess.Process]: ...


@pytest.fixture
async def start_run(home: Path, tmp_path: Path) -> AsyncIterator[StartRun]:
    started: list[asyncio.subprocess.Process] = []

    async def start(**settings: str) -> asyncio.subprocess.Process:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("ASKBACK_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.local", "run"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env={
                **ours,
                "PYTHONPATH": str(CHECKOUT),
                "ASKBACK_HOME": str(home),
                "ASKBACK_AGENT_ADDRESS": f"127.0.0.1:{free_port()}",
                "ASKBACK_STORAGE_ADDRESS": f"127.0.0.1:{free_port()}",
                **settings,
            },
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_wrong_setting_is_named_in_one_line_with_what_it_may_be(start_run: StartRun) -> None:
    assert await ended(await start_run(ASKBACK_REDIS_URL="memcached://here")) == (
        2,
        "",
        "ASKBACK_REDIS_URL: must be redis://host… or rediss://host…, or `none` to do without a cache\n",
    )


async def test_a_setting_of_a_service_is_checked_before_anything_starts(start_run: StartRun, home: Path) -> None:
    code, out, err = await ended(await start_run(ASKBACK_RUN_LEASE_S="soon", ASKBACK_RETRIEVAL_TOP_K="0"))
    assert (code, out) == (2, "")
    assert err == (
        "ASKBACK_RUN_LEASE_S: must be a number from 5 to 600, not 'soon'\n"
        "ASKBACK_RETRIEVAL_TOP_K: must be a whole number from 1 to 50, not '0'\n"
    )
    assert home.name not in os.listdir(home.parent)


async def test_a_url_that_is_refused_is_never_shown(start_run: StartRun) -> None:
    code, _, err = await ended(await start_run(ASKBACK_DATABASE_URL="mysql://root:hunter2@db"))
    assert code == 2
    assert err.startswith("ASKBACK_DATABASE_URL: must be postgresql://")
    assert "hunter2" not in err


@pytest.mark.parametrize("setting", ["ASKBACK_AGENT_ADDRESS", "ASKBACK_STORAGE_ADDRESS"])
async def test_a_port_that_is_taken_is_told_with_its_setting(start_run: StartRun, home: Path, setting: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, out, err = await ended(await start_run(**{setting: address}))
    assert (code, out) == (1, "")
    assert err == (
        f"{address} cannot be listened on (Address already in use); stop what listens there, or set {setting} to "
        "another address\n"
    )
    assert not (home / "postgres").exists()


async def test_both_ports_are_told_where_both_are_taken(start_run: StartRun) -> None:
    with socket.socket() as one, socket.socket() as other:
        addresses = []
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
            each.listen()
            addresses.append(f"127.0.0.1:{each.getsockname()[1]}")
        code, out, err = await ended(
            await start_run(ASKBACK_STORAGE_ADDRESS=addresses[0], ASKBACK_AGENT_ADDRESS=addresses[1])
        )
    assert (code, out) == (1, "")
    assert [line.split(" ")[0] for line in err.splitlines()] == addresses


@pytest.mark.parametrize("agent", ["127.0.0.1:50052", "localhost:50052", "0.0.0.0:50052"])
async def test_one_address_for_both_services_is_refused_before_the_start(
    start_run: StartRun, home: Path, agent: str
) -> None:
    settings = {"ASKBACK_STORAGE_ADDRESS": "127.0.0.1:50052", "ASKBACK_AGENT_ADDRESS": agent}
    assert await ended(await start_run(**settings)) == (
        2,
        "",
        f"ASKBACK_STORAGE_ADDRESS and ASKBACK_AGENT_ADDRESS: must be two addresses, not 127.0.0.1:50052 and {agent}\n",
    )
    assert home.name not in os.listdir(home.parent)


async def test_a_setting_that_nobody_reads_is_told_with_the_one_that_may_be_meant(
    start_run: StartRun, home: Path, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("ASKBACK_AGENT_ADRESS=127.0.0.1:1\nOTHER_AGENT_ADRESS=1\n")
    with held_home(home):
        _, out, _ = await ended(
            await start_run(
                ASKBACK_RETREIVAL_TOP_K="5", ASKBACK_ZEBRA="1", ASKBACK_USER="ada", ASKBACK_LOG_LEVEL="info"
            )
        )
    assert out.splitlines() == [
        "unknown setting ASKBACK_AGENT_ADRESS; did you mean ASKBACK_AGENT_ADDRESS?",
        "unknown setting ASKBACK_RETREIVAL_TOP_K; did you mean ASKBACK_RETRIEVAL_TOP_K?",
        "unknown setting ASKBACK_ZEBRA",
    ]


async def test_a_home_that_is_held_is_told_with_its_holder(start_run: StartRun, home: Path) -> None:
    with held_home(home):
        code, _, err = await ended(await start_run())
    assert code == 1
    assert err == (
        f"ASKBACK_HOME: {home} is held by process {os.getpid()}; stop it, or set ASKBACK_HOME to another folder\n"
    )


async def test_settings_are_read_from_an_env_file_too(start_run: StartRun, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ASKBACK_REDIS_URL=memcached://here\n")
    code, _, err = await ended(await start_run())
    assert code == 2
    assert err.startswith("ASKBACK_REDIS_URL: must be")


async def test_a_placeholder_is_told_and_counts_as_not_set(start_run: StartRun, home: Path) -> None:
    with held_home(home):
        _, out, _ = await ended(
            await start_run(ASKBACK_DATABASE_URL="your-database-url", ASKBACK_MODEL="replace-with-a-model")
        )
    assert "ASKBACK_MODEL holds a placeholder and counts as not set" in out
    assert "ASKBACK_DATABASE_URL holds a placeholder and counts as not set" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_while_it_starts_stops_it_cleanly(
    start_run: StartRun, home: Path, until: Until, number: signal.Signals
) -> None:
    process = await start_run()
    await until((home / "postgres" / "postmaster.pid").exists)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    code, out, err = await ended(process)
    assert (code, err) == (0, "")
    assert out.endswith("Stopping the agent, storage and the servers, in this order\nStopped\n")
    assert not any(lives(each) for each in family)
    assert not (home / "postgres" / "postmaster.pid").exists()


async def test_run_ingests_the_examples_once_says_where_it_is_and_stops_on_ctrl_c(
    start_run: StartRun, home: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    for start in ("first", "second"):
        process = await start_run(ASKBACK_AGENT_ADDRESS=address)
        assert process.stdout is not None
        said = (await process.stdout.readuntil(b"Ctrl-C stops everything.\n")).decode()
        family = psutil.Process(process.pid).children(recursive=True)
        assert f"agent       {address}\n" in said
        assert f"  export ASKBACK_AGENT_ADDRESS={address}\n  export ASKBACK_STORAGE_ADDRESS=127.0.0.1:" in said
        assert f"{address} askback.agent.v1.AgentService/StreamChat\n" in said
        assert ("Ingesting the example documents (once)" in said) is (start == "first")
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
        assert (code, err) == (0, "")
        assert not any(lives(each) for each in family)
