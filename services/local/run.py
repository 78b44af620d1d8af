"""`run`: the system in the foreground, until Ctrl-C or SIGTERM."""

import asyncio
import os
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path

from pydantic import SecretStr

from askback.client import AskbackError
from services.local.errors import LocalError
from services.local.ports import LOOPBACK, reachable_address
from services.local.settings import LocalSettings
from services.local.system import CHECKOUT, System, running_system
from services.runtime.settings import setting_name

EXAMPLES = CHECKOUT / "examples" / "knowledge"
FIRST_QUESTION = "How many requests per minute does API v3 allow?"


async def run(settings: LocalSettings) -> int:
    """Runs until told to stop; the exit code is 0 then, and 1 where it could not start."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    serving = asyncio.create_task(_serve(settings, told), name="the whole system")

    def stop() -> None:
        if told.is_set():
            tell("Stopping already; what does not end in time is killed")
            return
        told.set()
        tell("\nStopping the agent, storage and the servers, in this order")
        serving.cancel()

    caught = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Under nohup a hangup stays ignored.
        caught.append(signal.SIGHUP)
    for number in caught:
        loop.add_signal_handler(number, stop)
    try:
        await serving
    except LocalError as error:
        tell(str(error), to_stderr=True)
        return 1
    except asyncio.CancelledError:
        if not told.is_set():
            raise
        tell("Stopped")
        return 0
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
    raise AssertionError("it serves until it is cancelled")


async def _serve(settings: LocalSettings, told: asyncio.Event) -> None:
    async with running_system(
        home=settings.home,
        database_url=_open(settings.database_url),
        knowledge_url=_open(settings.knowledge_url),
        redis_url=_open(settings.redis_url),
        storage_address=settings.storage_address,
        agent_address=settings.agent_address,
        environment=os.environ,
        working_folder=Path.cwd(),
        report=lambda line: None if told.is_set() else tell(line),
        starting=f"Starting; data and logs are in {settings.home}",
    ) as system:
        await _ingest_examples(system)
        tell(_greeting(system))
        await asyncio.Event().wait()


async def _ingest_examples(system: System) -> None:
    done = system.home.examples_ingested
    if done.exists() or not EXAMPLES.is_dir():
        return
    tell(f"Ingesting the example documents (once), from {_as_seen_from_here(EXAMPLES)}")
    try:
        count = await system.ingest(EXAMPLES)
    except AskbackError as error:
        tell(f"The example documents were not ingested ({error}); the next start tries again")
        return
    done.touch(mode=0o600)
    tell(f"{count} documents are in the collection `default`")


def _greeting(system: System) -> str:
    postgres, valkey = system.servers.postgres, system.servers.valkey
    database = f"{LOOPBACK}:{postgres.port}" if postgres else "as ASKBACK_DATABASE_URL says"
    cache = f"{LOOPBACK}:{valkey.port}" if valkey else "as ASKBACK_REDIS_URL says"
    agent, storage = map(reachable_address, (system.agent_address, system.storage_address))
    exports = "".join(
        f"  export {setting_name(field)}={address}\n"
        for field, address in (("agent_address", agent), ("storage_address", storage))
        if address != LocalSettings.model_fields[field].default
    )
    askback = shlex.quote(str(_as_seen_from_here(Path(sys.executable).parent / "askback")))
    request = f'{{"user_id":"ada","message":"{FIRST_QUESTION}"}}'
    return f"""
agent       {system.agent_address}
storage     {system.storage_address}
PostgreSQL  {database}
cache       {cache}

A first question, in a second terminal:
{exports}  {askback} ask "{FIRST_QUESTION}"
or with grpcurl alone:
  grpcurl -plaintext -d '{request}' {agent} askback.agent.v1.AgentService/StreamChat

Ctrl-C stops everything."""


def _as_seen_from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _open(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def tell(line: str, *, to_stderr: bool = False) -> None:
    # Whoever read the output may be gone; the system stops in order all the same.
    with suppress(OSError):
        print(line, file=sys.stderr if to_stderr else sys.stdout, flush=True)
