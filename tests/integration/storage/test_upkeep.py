"""Two replicas look after their database by themselves, while they serve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import asyncpg
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import run_pb2
from askback.storage.v1.hitl_service_pb2 import GetHitlTaskRequest
from askback.storage.v1.run_service_pb2 import GetRunRequest
from askback.storage.v1.session_pb2 import Session
from askback.storage.v1.session_service_pb2 import ListSessionsRequest, UpdateSessionRequest
from services.storage.server import storage_server
from services.storage.settings import StorageSettings
from tests.integration.storage.harness import Storage, eventually, patiently, refused


@pytest.fixture
async def replicas(database_url: str) -> AsyncIterator[tuple[Storage, Storage]]:
    """They keep sessions for a week after their last change."""
    settings = StorageSettings.of(
        storage_address="127.0.0.1:0", database_url=database_url, drain_s=1, session_ttl_days=7, upkeep_interval_s=0.05
    )
    async with AsyncExitStack() as stack:
        channels = []
        for _ in range(2):
            running = await stack.enter_async_context(storage_server(settings))
            channels.append(await stack.enter_async_context(grpc.aio.insecure_channel(running.address)))
        yield Storage(channels[0]), Storage(channels[1])


@pytest.fixture
async def administrator(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close()


async def _session_ids(storage: Storage, user: str) -> list[str]:
    sessions = (await storage.sessions.ListSessions(ListSessionsRequest(user_id=user))).sessions
    return sorted(session.session_id for session in sessions)


async def test_expired_sessions_vanish_and_live_ones_stay_while_both_serve(
    replicas: tuple[Storage, Storage], administrator: asyncpg.Connection
) -> None:
    one, other = replicas
    past = Timestamp(seconds=1)
    for user in ("ada", "bob"):
        for n in range(20):
            await one.append(user, f"past {n}")
        for session_id in ("live", "old", "held"):
            await one.append(user, session_id)
        begun = await one.begin(user, "held")
    await administrator.execute("UPDATE sessions SET update_time = now() - interval '8 days' WHERE session_id = 'old'")

    async def expire(user: str, session_id: str) -> None:
        session = Session(user_id=user, session_id=session_id, expire_time=past)
        await patiently(lambda: one.sessions.UpdateSession(UpdateSessionRequest(session=session), timeout=20))

    async def write(user: str) -> None:
        for _ in range(20):
            await patiently(lambda: other.append(user, "live"))

    doomed = ["held", *(f"past {n}" for n in range(20))]
    await asyncio.gather(
        *(expire(user, session_id) for user in ("ada", "bob") for session_id in doomed), write("ada"), write("bob")
    )
    for user in ("ada", "bob"):
        left = await eventually(partial(_session_ids, other, user), lambda ids: len(ids) == 2)
        assert left == ["held", "live"]
        assert (await one.session(user, "live")).message_count == 42
    # Once no run holds it any more, it goes as well.
    await one.finish(begun)
    await eventually(lambda: _session_ids(one, "bob"), lambda ids: ids == ["live"])


async def test_a_session_shows_when_its_time_will_have_come(replicas: tuple[Storage, Storage]) -> None:
    one, other = replicas
    session = (await one.append("ada")).session
    assert session.expire_time.seconds == session.update_time.seconds + 7 * 86_400
    [listed] = (await other.sessions.ListSessions(ListSessionsRequest(user_id="ada"))).sessions
    assert listed.expire_time == session.expire_time
    later = (await one.append("ada")).session
    assert later.expire_time.seconds == later.update_time.seconds + 7 * 86_400
    own = Timestamp(seconds=4_000_000_000)
    changed = Session(user_id="ada", session_id="s", expire_time=own)
    await one.sessions.UpdateSession(UpdateSessionRequest(session=changed))
    assert (await other.append("ada")).session.expire_time == own


async def test_records_of_requests_are_swept_after_a_day(
    replicas: tuple[Storage, Storage], administrator: asyncpg.Connection
) -> None:
    one, other = replicas
    await one.append("ada", "s", request_id="old")
    await administrator.execute("UPDATE requests SET create_time = create_time - interval '25 hours'")
    await one.append("ada", "s", request_id="young")
    await eventually(lambda: administrator.fetchval("SELECT count(*) FROM requests"), lambda count: count == 1)
    assert (await other.append("ada", "s", request_id="young")).session.message_count == 4


async def test_questions_are_written_down_as_expired(
    replicas: tuple[Storage, Storage], administrator: asyncpg.Connection
) -> None:
    one, other = replicas
    asked = await one.ask_back("ada")
    waiting = await one.ask_back("bob")
    await administrator.execute("""
        UPDATE hitl_tasks SET expire_time = now() WHERE user_id = 'ada';
        UPDATE sessions SET pending_hitl_expire_time = now() WHERE user_id = 'ada'""")
    state = "SELECT state FROM hitl_tasks WHERE user_id = 'ada'"
    await eventually(lambda: administrator.fetchval(state), lambda state: state == hitl_pb2.HITL_STATE_EXPIRED)
    for user, opened, expected in (
        ("ada", asked.opened_task, hitl_pb2.HITL_STATE_EXPIRED),
        ("bob", waiting.opened_task, hitl_pb2.HITL_STATE_PENDING),
    ):
        task = (await other.hitl.GetHitlTask(GetHitlTaskRequest(user_id=user, task_id=opened.task_id))).task
        assert task.state == expected


async def test_a_run_whose_holder_died_ends_without_the_event_log_too(
    replicas: tuple[Storage, Storage], administrator: asyncpg.Connection
) -> None:
    one, other = replicas
    begun = await one.begin("ada")
    # For longer than upkeep waits for a log that is away.
    await administrator.execute("UPDATE runs SET lease_expire_time = now() - interval '1 min'")
    await eventually(lambda: other.session("ada"), lambda session: not session.active_run_id)
    run = (await other.runs.GetRun(GetRunRequest(user_id="ada", run_id=begun.run.run_id))).run
    assert (run.status, run.error.reason) == (run_pb2.RUN_STATUS_FAILED, "HOLDER_LOST")
    assert (await refused(one.finish(begun))).reason == "LEASE_LOST"
    assert (await one.turn("ada")).session.message_count == 3
