import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
import redis.asyncio
import redis.exceptions

from services.local.errors import LocalError
from services.local.postgres import Postgres
from services.local.process import Service
from services.local.servers import Servers
from services.local.valkey import Valkey
from tests.integration.local.running import RunServers, StartHost, Told, Until


async def ask(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def postgres_of(servers: Servers) -> Postgres:
    assert servers.postgres is not None
    return servers.postgres


def valkey_of(servers: Servers) -> Valkey:
    assert servers.valkey is not None
    return servers.valkey


def kill(service: Service) -> None:
    assert service.pid is not None
    os.kill(service.pid, signal.SIGKILL)


async def ping(url: str) -> bool:
    async with redis.asyncio.from_url(url) as client:
        return bool(await client.ping())


async def test_both_servers_answer_and_postgres_has_pgvector(run_servers: RunServers) -> None:
    async with run_servers() as servers:
        await ask(servers.knowledge_url, "CREATE EXTENSION vector")
        assert await ask(servers.knowledge_url, "SELECT '[3,4]'::vector <-> '[0,0]'") == 5
        assert await ask(servers.database_url, "SELECT current_database()") == "askback_storage"
        assert await ping(servers.redis_url)


async def test_a_clean_stop_leaves_no_process_and_no_pid_file(run_servers: RunServers, home: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    async with run_servers():
        family = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
        assert {"postgres", "valkey-server"} <= {process.name() for process in family}
    assert [process for process in family if process.is_running()] == []
    assert not (home / "postgres" / "postmaster.pid").exists()


async def test_data_survive_a_restart(run_servers: RunServers) -> None:
    async with run_servers() as servers:
        await ask(servers.database_url, "CREATE TABLE kept AS SELECT 'said' AS word")
    async with run_servers() as servers:
        assert await ask(servers.database_url, "SELECT word FROM kept") == "said"


async def test_a_killed_postgres_comes_back_at_the_same_url(run_servers: RunServers, told: Told, until: Until) -> None:
    async with run_servers() as servers:
        await ask(servers.database_url, "CREATE TABLE kept AS SELECT 'said' AS word")
        kill(postgres_of(servers).service)
        await until(lambda: told.has("PostgreSQL is back"))
        assert told.has("PostgreSQL was ended by SIGKILL; starting it again")
        assert await ask(servers.database_url, "SELECT word FROM kept") == "said"


async def test_a_killed_valkey_comes_back_at_the_same_url(run_servers: RunServers, told: Told, until: Until) -> None:
    async with run_servers() as servers:
        kill(valkey_of(servers).service)
        await until(lambda: told.has("Valkey is back"))
        assert await ping(servers.redis_url)


async def test_others_on_this_machine_need_the_password(run_servers: RunServers, home: Path) -> None:
    async with run_servers() as servers:
        with pytest.raises(asyncpg.InvalidPasswordError):
            await ask(f"postgresql://askback:guess@127.0.0.1:{postgres_of(servers).port}/postgres", "SELECT 1")
        with pytest.raises(redis.exceptions.AuthenticationError):
            await ping(f"redis://127.0.0.1:{valkey_of(servers).port}")
        assert (home / "postgres-password").stat().st_mode & 0o077 == 0


async def test_the_passwords_are_on_no_command_line_and_in_no_log(run_servers: RunServers, home: Path) -> None:
    async with run_servers() as servers:
        secrets = {postgres_of(servers).password, valkey_of(servers).password}
        lines = [" ".join(process.cmdline()) for process in psutil.Process().children(recursive=True)]
    lines += [log.read_text() for log in (home / "logs").iterdir()]
    assert not any(secret in line for secret in secrets for line in lines)


async def test_a_half_made_data_folder_is_made_anew(run_servers: RunServers, home: Path) -> None:
    half_made = home / "postgres.new-cut_short"
    (half_made / "base").mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")
    async with run_servers() as servers:
        assert await ask(servers.database_url, "SELECT 1") == 1
    assert not half_made.exists()


async def test_a_first_start_that_is_killed_is_made_anew(
    run_servers: RunServers, start_host: StartHost, home: Path, until: Until
) -> None:
    starting = asyncio.create_task(start_host())
    await until(lambda: any(home.glob("postgres.new-*")))
    (host,) = [child for child in psutil.Process().children() if str(home) in child.cmdline()]
    host.kill()
    host.wait()
    with pytest.raises(ValueError, match="Expecting value"):
        await starting
    async with run_servers() as servers:
        assert await ask(servers.database_url, "SELECT 1") == 1
    assert not any(name.startswith("postgres.new-") for name in os.listdir(home))


async def test_a_pid_file_whose_number_was_given_away_is_no_hindrance(run_servers: RunServers, home: Path) -> None:
    async with run_servers():
        account = (home / "postgres").stat()
    sleeper = await asyncio.create_subprocess_exec("sleep", "600", user=account.st_uid)
    try:
        pid_file = home / "postgres" / "postmaster.pid"
        pid_file.write_text(f"{sleeper.pid}\n{home / 'postgres'}\n0\n1\n\n127.0.0.1\n  0  0\nready\n")
        os.chown(pid_file, account.st_uid, account.st_gid)
        async with run_servers() as servers:
            assert await ask(servers.database_url, "SELECT 1") == 1
    finally:
        sleeper.kill()
        await sleeper.wait()


async def test_data_of_another_postgres_version_are_left_alone(run_servers: RunServers, home: Path) -> None:
    async with run_servers():
        pass
    (home / "postgres" / "PG_VERSION").write_text("13\n")
    with pytest.raises(LocalError, match="was written by PostgreSQL 13"):
        async with run_servers():
            pass


async def test_a_lost_password_is_told_with_what_to_do(run_servers: RunServers, home: Path) -> None:
    async with run_servers():
        (home / "postgres-password").unlink()
    with pytest.raises(LocalError, match="postgres-password is gone: put it back"):
        async with run_servers():
            pass
