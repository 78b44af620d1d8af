"""Writes to one session wait for one another without taking the connections of all."""

import asyncio

import asyncpg
import pytest

from services.storage.errors import Contention, DatabaseUnavailable
from services.storage.models import MessageType, NewMessage
from services.storage.store.base import ConversationStorage
from services.storage.store.commands import AppendMessages
from services.storage.store.postgres import PostgresConversationStorage
from services.storage.store.postgres.session_lines import SessionLines
from tests.integration.postgres_store.conftest import LIMITS
from tests.integration.postgres_store.wire import wire_to


async def _append(store: ConversationStorage, session_id: str) -> int:
    appended = await store.append_messages(
        AppendMessages(
            user_id="ada", session_id=session_id, messages=[NewMessage(type=MessageType.HUMAN, content="Hello")]
        )
    )
    return appended.messages[0].position


async def _answers() -> bool:
    return True


async def test_a_session_that_is_held_leaves_connections_for_the_others(
    store: ConversationStorage, administrator: asyncpg.Connection
) -> None:
    await _append(store, "held")
    async with administrator.transaction():
        await administrator.execute("SELECT FROM sessions WHERE session_id = 'held' FOR UPDATE")
        waiting = [asyncio.create_task(_append(store, "held")) for _ in range(5 * LIMITS.pool_size)]
        for number in range(1, 4):
            assert await _append(store, "free") == number
        for task in waiting:
            assert not task.done()
            task.cancel()
        await asyncio.wait(waiting)
    assert await _append(store, "held") == 2


async def test_a_write_that_stands_in_line_for_too_long_is_told_to_come_again(
    store: ConversationStorage, administrator: asyncpg.Connection
) -> None:
    await _append(store, "held")
    async with administrator.transaction():
        await administrator.execute("SELECT FROM sessions WHERE session_id = 'held' FOR UPDATE")
        outcomes = await asyncio.gather(*(_append(store, "held") for _ in range(4)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Contention] * 4
    assert await _append(store, "held") == 2


@pytest.mark.parametrize("leaves", [1, 2, 3])
async def test_whoever_leaves_the_line_lets_the_next_come(
    store: ConversationStorage, administrator: asyncpg.Connection, leaves: int
) -> None:
    """Wherever in the line it stood."""
    await _append(store, "held")
    async with administrator.transaction():
        await administrator.execute("SELECT FROM sessions WHERE session_id = 'held' FOR UPDATE")
        waiting = [asyncio.create_task(_append(store, "held")) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[leaves].cancel()
        await asyncio.wait([waiting[leaves]])
    assert sorted(await asyncio.gather(*waiting[:leaves], *waiting[leaves + 1 :])) == [2, 3, 4]


async def test_writes_in_line_before_a_silent_database_are_told_that_it_is_away(database_url: str) -> None:
    """And not that others were quicker."""
    async with wire_to(database_url) as wire:
        store = await PostgresConversationStorage.open(wire.url, limits=LIMITS)
        try:
            await _append(store, "held")
            wire.stall()
            outcomes = await asyncio.gather(*(_append(store, "held") for _ in range(4)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [DatabaseUnavailable] * 4
            wire.resume()
        finally:
            await store.close()


async def test_whoever_comes_while_the_next_is_called_stands_behind_it() -> None:
    """And for no longer than any other."""
    lines = SessionLines(wait_s=0.05, answers=_answers)
    first_may_go, second_may_go = asyncio.Event(), asyncio.Event()

    async def write(may_go: asyncio.Event) -> None:
        async with lines.in_turn("ada", "s"):
            await may_go.wait()

    first, second = asyncio.create_task(write(first_may_go)), asyncio.create_task(write(second_may_go))
    await asyncio.sleep(0)
    first_may_go.set()
    # Between the end of the first and the beginning of the second, nobody holds the line.
    await first
    with pytest.raises(Contention):
        await asyncio.wait_for(write(asyncio.Event()), 5)
    second_may_go.set()
    await second
