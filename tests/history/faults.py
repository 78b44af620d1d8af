"""What goes wrong while the clients are at work, in an order drawn from the seed."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import redis.asyncio
from redis.exceptions import RedisError

from tests.history.record import History
from tests.history.servers import Replica, World, connected, freeze, thaw

LONGEST_HOLD_S = 0.4
CALLS_TO_HIT = 3
LOOKS, LOOK_S = 1_000, 0.002

_KILL_BACKENDS = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < $1"""


class Faults:
    """The faults of one seed."""

    def __init__(
        self, world: World, replicas: Sequence[Replica], *, database_url: str, history: History, rng: random.Random
    ):
        self._world = world
        self._replicas = replicas
        self._database_url = database_url
        self._history = history
        self._rng = rng
        self._old: dict[bytes, bytes] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        self._kinds: Mapping[str, Callable[[], Awaitable[None]]] = {
            "valkey_killed": self._kill_valkey,
            "valkey_frozen": self._freeze_valkey,
            "valkey_flushed": self._flush_valkey,
            "valkey_restored": self._restore_valkey,
            "backends_killed": self._kill_backends,
            "storage_killed": self._kill_storage,
            "storage_killed_after_commit": self._kill_storage_after_commit,
            "replies_lost": self._lose_replies,
            "connections_cut": self._cut_connections,
        }

    async def run(self, *, within_s: float) -> None:
        """Every kind at least once, spread over the time; what was old enough to be old data comes late."""
        kinds = [kind for kind in self._kinds if kind != "valkey_restored"]
        kinds += self._rng.choices(["backends_killed", "replies_lost", "connections_cut"], k=2)
        self._rng.shuffle(kinds)
        # A cache that is killed is empty, and one that is filled by then holds newer data: twice is surer.
        half = len(kinds) // 2
        kinds[half:half] = ["valkey_restored"]
        kinds.append("valkey_restored")
        # The first moments make the sessions, and the old data.
        pause = within_s / (len(kinds) + 1)
        await asyncio.sleep(pause / 2)
        await self._save_valkey()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for number, kind in enumerate(kinds):
            await asyncio.sleep(begin + (number + self._rng.uniform(0.1, 0.6)) * pause - loop.time())
            await self._traffic()
            with self._history.fault(kind):
                await self._kinds[kind]()
            if kind == "valkey_flushed":
                await self._save_valkey()
        await asyncio.gather(*self._restarts)

    async def heal(self) -> None:
        """Brings back whatever is still away."""
        thaw(self._world.valkey.service)
        await self._world.valkey.service.start()
        for replica in self._replicas:
            replica.proxy.release()
            await replica.service.start()

    async def _traffic(self) -> None:
        """Returns as soon as a few calls are under way, so that the fault has something to hit."""
        for _ in range(LOOKS):
            if self._history.in_flight >= CALLS_TO_HIT:
                return
            await asyncio.sleep(LOOK_S)

    async def _kill_valkey(self) -> None:
        await self._world.valkey.service.kill()
        await asyncio.sleep(self._rng.uniform(0.1, 0.5))
        await self._world.valkey.service.start()

    async def _freeze_valkey(self) -> None:
        freeze(self._world.valkey.service)
        try:
            await asyncio.sleep(self._rng.uniform(0.2, 0.6))
        finally:
            thaw(self._world.valkey.service)

    async def _flush_valkey(self) -> None:
        async with self._valkey() as valkey:
            await valkey.flushall()

    async def _save_valkey(self) -> None:
        async with self._valkey() as valkey:
            keys = [key async for key in valkey.scan_iter(count=1_000)]
            dumps = [await valkey.dump(key) for key in keys]
        # What was saved before is older still, and stays.
        saved = {key: dump for key, dump in zip(keys, dumps, strict=True) if dump is not None}
        self._old = {**saved, **self._old}

    async def _restore_valkey(self) -> None:
        async with self._valkey() as valkey:
            for key, dump in self._old.items():
                with suppress(RedisError):
                    await valkey.restore(key, 0, dump, replace=True)

    def _valkey(self) -> redis.asyncio.Redis:
        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(self._world.valkey.url)
        return client

    async def _kill_backends(self) -> None:
        async with connected(self._database_url) as connection:
            await connection.execute("SELECT setseed($1)", self._rng.uniform(-1, 1))
            await connection.fetchval(_KILL_BACKENDS, self._rng.choice([0.3, 0.6, 1.0]))

    async def _kill_storage(self) -> None:
        await self._kill(await self._one_up())

    async def _kill_storage_after_commit(self) -> None:
        replica = await self._one_up()
        replica.proxy.hold()
        await asyncio.sleep(self._rng.uniform(0.1, LONGEST_HOLD_S))
        await self._kill(replica)
        replica.proxy.cut()

    async def _lose_replies(self) -> None:
        replica = await self._one_up()
        replica.proxy.hold()
        await asyncio.sleep(self._rng.uniform(0.05, LONGEST_HOLD_S))
        replica.proxy.cut()

    async def _cut_connections(self) -> None:
        (await self._one_up()).proxy.cut()

    async def _one_up(self) -> Replica:
        """One of those that are up, once both are: with none nothing could be hit."""
        await asyncio.gather(*self._restarts)
        return self._rng.choice(self._replicas)

    async def _kill(self, replica: Replica) -> None:
        """By SIGKILL; it comes back while the next faults happen."""
        await replica.service.kill()
        restart = asyncio.create_task(replica.service.start())
        self._restarts.add(restart)
        restart.add_done_callback(self._restarts.discard)
