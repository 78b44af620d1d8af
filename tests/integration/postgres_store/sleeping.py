"""Statements that sleep, as PostgreSQL sees them."""

import asyncio

import asyncpg

_SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"


async def until_sleeping(administrator: asyncpg.Connection, count: int) -> None:
    async with asyncio.timeout(10):
        while True:
            if await administrator.fetchval(_SLEEPING) == count:
                return
            await asyncio.sleep(0.01)
