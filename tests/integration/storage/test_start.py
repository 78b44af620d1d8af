"""How a storage process starts, with its database there, away, late, or shared with others."""

import asyncio
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.runtime.server import StartupError
from services.runtime.settings import SettingsError
from services.storage.server import SERVICE_NAMES, storage_server
from services.storage.settings import StorageSettings
from tests.integration.storage.harness import Storage, eventually

ROOT = Path(__file__).parents[3]
UNREACHABLE = "postgresql://root:hunter2@127.0.0.1:1/askback"


def _settings(**values: Any) -> StorageSettings:
    return StorageSettings.of(**{"storage_address": "127.0.0.1:0", "drain_s": 1} | values)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hunter2",
        "mysql://root:hunter2@db/askback",
        "postgresql://root:hunter2@[db/askback",
        "postgresql://root:hunter2@db:port/askback",
        "postgresql://root:hunt er2@db/askback",
    ],
)
def test_a_database_url_that_is_none_is_told_in_one_line_without_it(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        _settings(database_url=url)
    [line] = caught.value.lines
    assert line.startswith("ASKBACK_DATABASE_URL: must be postgresql://")
    assert "make run" in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///askback?host=/run/postgresql",
        "postgres://db",
        "postgresql+asyncpg://root@db:5432/askback",
        "postgresql://root:p%40ss:w@db1:5432,db2:5433/askback?target_session_attrs=read-write",
        "postgresql://root@[::1]:5432/askback",
    ],
)
def test_any_address_of_a_postgresql_is_a_database_url(url: str) -> None:
    assert _settings(database_url=url).database_url.get_secret_value() == url


@pytest.mark.parametrize(
    "url", ["hunter2", "memcached://hunter2", "redis://db:hunter2", "redis://:hunt er2@db", "NONE", "redis://db:0"]
)
def test_a_redis_url_that_is_none_is_told_in_one_line_without_it(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        _settings(database_url=UNREACHABLE, redis_url=url)
    [line] = caught.value.lines
    assert line.startswith("ASKBACK_REDIS_URL: must be redis://host… or rediss://host…, or `none`")
    assert "hunt" not in line


@pytest.mark.parametrize("url", ["none", "redis://db", "rediss://:p%40ss@db:6380/1", "unix:///run/redis.sock?db=1"])
def test_any_address_of_a_redis_is_a_redis_url(url: str) -> None:
    assert _settings(database_url=UNREACHABLE, redis_url=url).redis_url.get_secret_value() == url


async def test_an_option_that_redis_does_not_know_ends_the_start_in_one_line(database_url: str) -> None:
    settings = _settings(database_url=database_url, redis_url="redis://:hunter2@db?no_such_option=1")
    with pytest.raises(StartupError, match="ASKBACK_REDIS_URL") as caught:
        async with storage_server(settings):
            raise AssertionError("it has started")
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)


async def test_a_redis_that_is_away_keeps_no_server_from_serving(database_url: str) -> None:
    settings = _settings(database_url=database_url, redis_url="redis://127.0.0.1:1")
    async with storage_server(settings) as running, grpc.aio.insecure_channel(running.address) as channel:
        assert (await Storage(channel).turn("u")).session.message_count == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_ttl_days", 0),
        ("session_ttl_days", -1),
        ("session_ttl_days", "never"),
        ("run_ttl_days", 0.5),
        ("run_events_ttl_s", 0),
        ("upkeep_interval_s", 0),
    ],
)
def test_a_time_that_is_none_is_told_in_one_line(field: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        _settings(database_url=UNREACHABLE, **{field: value})
    [line] = caught.value.lines
    assert line.startswith(f"ASKBACK_{field.upper()}: must be a number ")


async def test_an_option_that_the_driver_does_not_know_ends_the_start_in_one_line() -> None:
    settings = _settings(database_url=f"{UNREACHABLE}?sslmode=hunter2")
    with pytest.raises(StartupError, match="ASKBACK_DATABASE_URL") as caught:
        async with storage_server(settings):
            raise AssertionError("it has started")
    assert "hunter2" not in str(caught.value)


async def test_a_database_that_stays_away_ends_the_start_in_one_line_without_its_address() -> None:
    with pytest.raises(StartupError) as caught:
        async with storage_server(_settings(database_url=UNREACHABLE, database_wait_s=0.3)):
            raise AssertionError("it has started")
    assert "ASKBACK_DATABASE_URL" in str(caught.value)
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)


async def test_replicas_that_start_at_once_on_an_empty_database_all_serve(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        servers = [storage_server(_settings(database_url=database_url)) for _ in range(3)]
        running = await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        for n, server in enumerate(running):
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
            assert (await Storage(channel).turn("u")).session.message_count == 2 * (n + 1)


async def test_health_is_serving_for_each_service_and_follows_the_database(
    postgres_url: str, database_url: str
) -> None:
    async with (
        storage_server(_settings(database_url=database_url)) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def status(service: str = "") -> int:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            return int(answer.status)

        for service in ("", *SERVICE_NAMES):
            assert await status(service) == health_pb2.HealthCheckResponse.SERVING
        name = urlsplit(database_url).path.removeprefix("/")
        connection = await asyncpg.connect(postgres_url)
        try:
            await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            await eventually(status, lambda seen: seen == health_pb2.HealthCheckResponse.NOT_SERVING)
            await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await eventually(status, lambda seen: seen == health_pb2.HealthCheckResponse.SERVING)
        finally:
            await connection.close()
        assert (await Storage(channel).turn("u")).session.message_count == 2


async def test_the_settings_stand_in_for_what_a_request_leaves_out(database_url: str) -> None:
    settings = _settings(database_url=database_url, run_lease_s=77, hitl_expire_s=3_600)
    async with storage_server(settings) as running, grpc.aio.insecure_channel(running.address) as channel:
        storage = Storage(channel)
        begun = await storage.begin("u", "a")
        assert begun.run.lease_expire_time.seconds - begun.run.create_time.seconds in (77, 78)
        asked = await storage.ask_back("u", "b")
        assert asked.opened_task.expire_time.seconds - asked.opened_task.create_time.seconds == 3_600
        sooner = await storage.ask_back("u", "c", expire_after=Duration(seconds=60))
        assert sooner.opened_task.expire_time.seconds - sooner.opened_task.create_time.seconds == 60


@asynccontextmanager
async def _process(folder: Path, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.storage",
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "ASKBACK_STORAGE_ADDRESS": "127.0.0.1:0", **settings},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("settings", "code"),
    [({}, 2), ({"ASKBACK_DATABASE_URL": UNREACHABLE, "ASKBACK_DATABASE_WAIT_S": "0"}, 1)],
    ids=["no database named", "database away"],
)
async def test_a_process_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, settings: dict[str, str], code: int
) -> None:
    async with _process(tmp_path, **settings) as process, asyncio.timeout(60):
        _, told = await process.communicate()
    assert process.returncode == code
    [line] = told.decode().splitlines()
    assert line.startswith("storage: ") and "ASKBACK_DATABASE_URL" in line
    assert "hunter2" not in line


async def _logged(process: asyncio.subprocess.Process, event: str) -> dict[str, Any]:
    """Reads the log up to this event."""
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while line := await process.stderr.readline():
            entry: dict[str, Any] = json.loads(line)
            if entry["event"] == event:
                return entry
    raise AssertionError(f"it ended without {event}")


async def test_a_database_that_comes_late_is_waited_for(tmp_path: Path, postgres_url: str) -> None:
    name = f"late_{secrets.token_hex(8)}"
    url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    connection = await asyncpg.connect(postgres_url)
    try:
        async with _process(tmp_path, ASKBACK_DATABASE_URL=url, ASKBACK_LOG_FORMAT="json") as process:
            await _logged(process, "database_awaited")
            await connection.execute(f"CREATE DATABASE {name}")
            address = (await _logged(process, "serving"))["address"]
            async with grpc.aio.insecure_channel(address) as channel:
                assert (await Storage(channel).turn("u")).session.message_count == 2
    finally:
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.close()


async def test_a_process_serves_until_it_is_told_to_stop(tmp_path: Path, database_url: str) -> None:
    async with _process(tmp_path, ASKBACK_DATABASE_URL=database_url, ASKBACK_LOG_FORMAT="json") as process:
        address = (await _logged(process, "serving"))["address"]
        async with grpc.aio.insecure_channel(address) as channel:
            assert (await Storage(channel).turn("u", message="hunter2")).session.message_count == 2
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            _, rest = await process.communicate()
    assert process.returncode == 0
    assert b"stopped" in rest and b"hunter2" not in rest
