"""A process of its own that runs the embedded servers; run as a script by the tests that end it.

Its argument is the folder. It prints one line of JSON once they answer, and ends on SIGTERM.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

from services.local.errors import LocalError
from services.local.home import held_home
from services.local.servers import running_servers


async def main(folder: Path) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    with held_home(folder) as home:
        async with running_servers(home, report=lambda _: None, durable=False) as servers:
            line = json.dumps({"database_url": servers.database_url, "redis_url": servers.redis_url})
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            await told.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1])))
    except LocalError as error:
        sys.exit(str(error))
