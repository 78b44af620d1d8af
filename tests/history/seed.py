"""One seed: clients and faults on two storage processes, then the proof that all is well, then the verdict."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from askback.client import StorageClient
from tests.history.checker import Violation, check
from tests.history.database import look_into
from tests.history.faults import Faults
from tests.history.reads import PLACES
from tests.history.record import Failure, History, Outcome, now
from tests.history.servers import REPLICAS, Replica, World, fresh_database, running_replicas
from tests.history.turns import LEASE_S
from tests.history.workload import Client

CLIENTS = 10
STORAGE = ("services.storage",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one seed."""

    seed: int
    violations: Sequence[Violation]
    history: History
    took_s: float

    @property
    def summary(self) -> str:
        history = self.history
        known = [write for write in history.writes if write.outcome is Outcome.OK]
        kinds = len({fault.kind for fault in history.faults})
        least = min((fault.in_flight for fault in history.faults), default=0)
        unsure = sum(write.unsure for write in known)
        return (
            f"{history.calls} calls, {len(known)} writes ({unsure} of them known after a lost reply), "
            f"{len(history.faults)} faults of {kinds} kinds with {least} or more calls under way, "
            f"{history.lost_replies} replies lost, {self.took_s:.1f} s"
        )


async def run_seed(world: World, seed: int, *, traffic_s: float, module: Sequence[str] = STORAGE) -> Verdict:
    """Everything random is drawn from the seed; what the machine does between the draws is not."""
    begin = time.monotonic()
    history = History()
    async with AsyncExitStack() as stack:
        database_url = await stack.enter_async_context(fresh_database(world))
        replicas = await stack.enter_async_context(running_replicas(world, database_url, seed=seed, module=module))
        faults = Faults(
            world, replicas, database_url=database_url, history=history, rng=random.Random(f"{seed} faults")
        )
        clients = [
            await _client(stack, f"c{number}", seed=seed, replicas=replicas, history=history)
            for number in range(CLIENTS)
        ]
        last = await _client(stack, "last", seed=seed, replicas=replicas, history=history)
        done = asyncio.Event()
        abandon_until = now() + traffic_s - LEASE_S / 2
        async with asyncio.TaskGroup() as work:
            for client in clients:
                work.create_task(client.work(done=done, abandon_until=abandon_until))
            try:
                await faults.run(within_s=traffic_s)
            finally:
                done.set()
        await faults.heal()
        await _prove_usable(last, history)
        await look_into(database_url, history)
    violations = check(history)
    return Verdict(seed=seed, violations=violations, history=history, took_s=time.monotonic() - begin)


async def _client(
    stack: AsyncExitStack, name: str, *, seed: int, replicas: Sequence[Replica], history: History
) -> Client:
    channels = [await stack.enter_async_context(StorageClient(replica.address)) for replica in replicas]
    return Client(name, rng=random.Random(f"{seed} {name}"), replicas=channels, history=history)


async def _prove_usable(client: Client, history: History) -> None:
    """Every session takes a turn and a message once the faults are over, and is read whole."""

    async def prove(number: int) -> None:
        place = PLACES[number]
        if not await client.prove_usable(place):
            history.failures.append(Failure(f"a turn of {place.user}/{place.session} after the last fault", "REFUSED"))
        for _ in range(2 * REPLICAS):
            await client.load(place, whole=True)
        await client.list_questions(place)
        await client.list_runs(place)

    await asyncio.gather(*(prove(number) for number in range(len(PLACES))))
    for user in {place.user: place for place in PLACES}.values():
        await client.list_sessions(user)
