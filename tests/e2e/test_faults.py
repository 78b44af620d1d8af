"""Storage is busy, away, or gone in the middle of a turn; an agent is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import asyncpg
import pytest
from pydantic import SecretStr

from askback.client import AgentClient, AskbackError, Overloaded, RunInProgress, StorageClient
from askback.storage.v1 import run_pb2
from services.storage.server import storage_server
from services.storage.settings import StorageSettings
from tests.e2e.harness import OpenAgent, chat, kinds, text_of, until, until_finished
from tests.e2e.slow_model import speaking

QUESTION = "How many requests per minute does API v3 allow?"


def storage_settings(url: str, *, address: str = "127.0.0.1:0", **settings: object) -> StorageSettings:
    defaults: dict[str, object] = {"database_lock_timeout_s": 0.2, "drain_s": 0.0}
    return StorageSettings.of(storage_address=address, database_url=SecretStr(url), **{**defaults, **settings})


@asynccontextmanager
async def locked_session(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Someone else holds the row of every session; ending the context lets go."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM sessions FOR UPDATE")
            yield connection
    finally:
        await connection.close()


async def waiting(connection: asyncpg.Connection, *, expected: bool) -> bool:
    """Whether it is as expected that someone waits for a lock."""
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await connection.fetchval(count)) is expected


async def test_a_storage_too_busy_at_the_end_costs_time_and_no_words(database_url: str, open_agent: OpenAgent) -> None:
    model, models = speaking("One ", "two")
    async with (
        storage_server(storage_settings(database_url)) as storage,
        open_agent(storage_address=storage.address, models=models) as server,
        AgentClient(server.address) as agent,
        StorageClient(storage.address) as stored,
    ):
        events = []
        async with AsyncExitStack() as lock:
            async for event in agent.stream_chat(user_id="u", session_id="s", message=QUESTION):
                events.append(event)
                if text_of(events) == "One " and event.HasField("content"):
                    connection = await lock.enter_async_context(locked_session(database_url))
                    model.go_on()
                if text_of(events) == "One two" and event.HasField("content"):
                    # One attempt waits, and is refused; another waits.
                    for expected in (True, False, True):
                        await until(partial(waiting, connection, expected=expected))
                    await lock.aclose()
        assert kinds(events)[-1] == "finished"
        [_, reply] = (await stored.list_messages(user_id="u", session_id="s")).messages
        assert reply.content == "One two"


async def test_a_storage_without_a_free_connection_at_the_end_costs_time_and_no_words(
    database_url: str, open_agent: OpenAgent
) -> None:
    model, models = speaking("One ", "two")
    settings = storage_settings(database_url, database_pool_size=1, database_lock_timeout_s=30.0)
    async with (
        storage_server(settings) as storage,
        open_agent(storage_address=storage.address, models=models) as server,
        AgentClient(server.address) as agent,
        StorageClient(storage.address) as stored,
        AsyncExitStack() as lock,
    ):
        blocked: asyncio.Task[object] | None = None
        events = []
        async for event in agent.stream_chat(user_id="u", session_id="s", message=QUESTION):
            events.append(event)
            if text_of(events) == "One " and event.HasField("content"):
                # The only connection waits for a row, until the lock is let go.
                connection = await lock.enter_async_context(locked_session(database_url))
                blocked = asyncio.create_task(stored.begin_run(user_id="u", session_id="s", message="Another"))
                await until(partial(waiting, connection, expected=True))
                model.go_on()
            if text_of(events) == "One two" and event.HasField("content"):
                # Each waits as long for a connection as FinishRun did before it: that one was refused as well.
                for _ in range(2):
                    with pytest.raises(Overloaded):
                        await stored.get_session(user_id="u", session_id="s")
                await lock.aclose()
                assert blocked is not None
                with pytest.raises(RunInProgress):
                    await blocked
        assert kinds(events)[-1] == "finished"
        [_, reply] = (await stored.list_messages(user_id="u", session_id="s")).messages
        assert reply.content == "One two"


async def test_a_storage_that_is_back_within_the_lease_loses_nothing(database_url: str, open_agent: OpenAgent) -> None:
    model, models = speaking("One ", "two")
    async with AsyncExitStack() as serving, AsyncExitStack() as around:
        storage = await serving.enter_async_context(storage_server(storage_settings(database_url)))
        server = await around.enter_async_context(open_agent(storage_address=storage.address, models=models))
        agent = await around.enter_async_context(AgentClient(server.address))
        events = []
        async for event in agent.stream_chat(user_id="u", session_id="s", message=QUESTION):
            events.append(event)
            if text_of(events) == "One " and event.HasField("content"):
                await serving.aclose()
                model.go_on()
            if text_of(events) == "One two" and event.HasField("content"):
                again = storage_settings(database_url, address=storage.address)
                await around.enter_async_context(storage_server(again))
        assert kinds(events)[-1] == "finished"
        stored = await around.enter_async_context(StorageClient(storage.address))
        [_, reply] = (await stored.list_messages(user_id="u", session_id="s")).messages
        assert reply.content == "One two"


async def test_a_storage_that_stays_away_is_told_and_the_question_is_kept(
    database_url: str, open_agent: OpenAgent
) -> None:
    _, models = speaking("One ")
    async with AsyncExitStack() as serving, AsyncExitStack() as around:
        storage = await serving.enter_async_context(storage_server(storage_settings(database_url)))
        server = await around.enter_async_context(
            open_agent(storage_address=storage.address, models=models, run_lease_s=5.0)
        )
        agent = await around.enter_async_context(AgentClient(server.address))
        events = []
        with pytest.raises(AskbackError) as ended:
            async for event in agent.stream_chat(user_id="u", session_id="s", message=QUESTION):
                events.append(event)
                if event.HasField("started"):
                    await serving.aclose()
        assert ended.value.reason == "STORAGE_UNAVAILABLE"
        assert ended.value.metadata["run_id"] == events[0].run_id
        assert "finished" not in kinds(events)
        await around.enter_async_context(storage_server(storage_settings(database_url, address=storage.address)))
        stored = await around.enter_async_context(StorageClient(storage.address))
        [question] = (await stored.list_messages(user_id="u", session_id="s")).messages
        assert question.content == QUESTION


async def test_a_dead_agents_session_is_another_agents_once_the_lease_is_over(
    database_url: str, open_agent: OpenAgent
) -> None:
    async with (
        storage_server(storage_settings(database_url)) as storage,
        StorageClient(storage.address) as stored,
        open_agent(storage_address=storage.address) as other,
        AgentClient(other.address) as second,
    ):
        asked = await second.chat(user_id="u", session_id="s", message="How do I reset the admin PIN?")
        # What an agent leaves behind that was killed: a run that nobody renews or finishes.
        dead = await stored.begin_run(user_id="u", session_id="s", message="Cedar", lease=5.0)
        assert dead.run.answered_task_id == asked.hitl_request.task_id
        with pytest.raises(RunInProgress) as refused:
            await second.chat(user_id="u", session_id="s", message="Cedar")
        assert refused.value.metadata["active_run_id"] == dead.run.run_id
        await _end_lease(database_url)

        events = await chat(second, user_id="u", session_id="s", message="Cedar")

        assert events[0].started.answered_task_id == asked.hitl_request.task_id
        assert "pin.dat" in text_of(events)
        run = await stored.get_run(user_id="u", run_id=dead.run.run_id)
        assert (run.status, run.error.code, run.error.reason) == (run_pb2.RUN_STATUS_FAILED, 14, "HOLDER_LOST")
        messages = (await stored.list_messages(user_id="u", session_id="s")).messages
        assert [message.position for message in messages] == [1, 2, 3, 4, 5]
        with pytest.raises(AskbackError) as late:
            await stored.finish_run(
                user_id="u",
                run_id=dead.run.run_id,
                fencing_token=dead.fencing_token,
                status="COMPLETED",
                reply={"type": "AI", "content": "too late"},
            )
        assert late.value.reason == "LEASE_LOST"


async def test_turns_of_one_session_at_once_leave_whole_turns(database_url: str, open_agent: OpenAgent) -> None:
    async with (
        storage_server(storage_settings(database_url)) as storage,
        StorageClient(storage.address) as stored,
        open_agent(storage_address=storage.address) as server,
        AgentClient(server.address) as agent,
    ):
        results = await asyncio.gather(
            *(agent.chat(user_id="u", session_id="s", message=f"{QUESTION} ({number})") for number in range(8)),
            return_exceptions=True,
        )
        done = [result for result in results if not isinstance(result, BaseException)]
        assert all(isinstance(result, RunInProgress) for result in results if isinstance(result, BaseException))
        assert done
        messages = (await stored.list_messages(user_id="u", session_id="s")).messages
        assert [message.position for message in messages] == list(range(1, 2 * len(done) + 1))
        for question, reply in zip(messages[::2], messages[1::2], strict=True):
            assert question.run_id == reply.run_id
        await until_finished(stored, "u", messages[-1].run_id)


async def _end_lease(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("UPDATE runs SET lease_expire_time = now() WHERE finish_time IS NULL")
    finally:
        await connection.close()
