"""The layer in Redis: what one replica has read serves them all.

It is asked within the connection's short budget, and believed in nothing. Whatever it does, the worst that
follows is that a read goes to the database.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import cast
from urllib.parse import quote

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from services.storage.store.redis_connection import RedisConnection, RedisUnavailable

VALUE_KEPT_S = 3_600
MAX_PUTS_UNDER_WAY = 32
"""Fills that Redis has not taken yet; beyond them a value is not stored."""
_DELETES_AT_ONCE = 200

_log = structlog.get_logger()


def messages_key(user_id: str, session_id: str) -> str:
    return f"askback:chat_messages:{quote(user_id, safe='')}:{quote(session_id, safe='')}"


def sessions_key(user_id: str, *, full: bool) -> str:
    # No quoted name holds a colon: what follows one is no part of it.
    return f"askback:chat_sessions:{quote(user_id, safe='')}{':full' if full else ''}"


class SharedCache:
    """Values by key. Without a connection it holds nothing."""

    def __init__(self, connection: RedisConnection | None):
        self._connection = connection
        self._puts: dict[str, asyncio.Task[None]] = {}
        self.stored = 0
        self.not_stored = 0
        """Values that Redis did not take, or was not asked to for being too far behind."""

    @property
    def storing(self) -> int:
        """How many values are on their way."""
        return len(self._puts)

    async def get(self, key: str) -> bytes | None:
        """None where there is none, and wherever Redis does not say in time."""
        if self._connection is None or self._connection.is_open:
            return None
        try:
            return await self._connection.run(partial(_get, key=key))
        except RedisUnavailable:
            return None

    def put_later(self, key: str, pack: Callable[[], bytes]) -> None:
        """Stores the value off the caller's path, unless one for the key is on its way."""
        if self._connection is None or self._connection.is_open or key in self._puts:
            return
        if len(self._puts) >= MAX_PUTS_UNDER_WAY:
            self.not_stored += 1
            return
        task = asyncio.create_task(self._put(self._connection, key, pack), context=Context())
        self._puts[key] = task
        task.add_done_callback(lambda ended: self._end_put(key, ended))

    async def delete(self, keys: Sequence[str]) -> None:
        """As far as Redis does it in time: what is left is served to nobody, and goes within the hour."""
        if under_way := [task for key in keys if (task := self._puts.get(key)) is not None]:
            await asyncio.wait(under_way)
        if self._connection is None:
            return
        for start in range(0, len(keys), _DELETES_AT_ONCE):
            some = keys[start : start + _DELETES_AT_ONCE]
            with suppress(RedisUnavailable):
                await self._connection.run(partial(_delete, keys=some))

    async def close(self) -> None:
        """Once what is being stored has been."""
        while self._puts:
            await asyncio.wait(list(self._puts.values()))

    async def _put(self, connection: RedisConnection, key: str, pack: Callable[[], bytes]) -> None:
        value = pack()
        try:
            await connection.run(lambda redis: redis.set(key, value, ex=VALUE_KEPT_S))
        except RedisUnavailable:
            self.not_stored += 1
        else:
            self.stored += 1

    def _end_put(self, key: str, task: asyncio.Task[None]) -> None:
        del self._puts[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("cache_value_not_written", exc_info=error)


async def _get(redis: Redis, *, key: str) -> bytes | None:
    try:
        # Replies are never decoded.
        return cast("bytes | None", await redis.get(key))
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        # Another's; it is read like any value that is none of ours.
        return b""


async def _delete(redis: Redis, *, keys: Sequence[str]) -> None:
    # A command for each key: on a cluster, they lie on different slots.
    async with redis.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.unlink(key)
        await pipeline.execute()
