"""A real PgBouncer, where one is installed."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

_NOBODY = 65_534


@asynccontextmanager
async def pgbouncer_to(url: str, *, binary: str, folder: Path, size: int) -> AsyncIterator[str]:
    """The address that leads over it; it pools transactions, in turn over its connections."""
    parts, port = urlsplit(url), _free_port()
    _prepare(parts, port, folder, size)
    process = await asyncio.create_subprocess_exec(binary, "-q", "settings", cwd=folder, user=_account())
    try:
        await _until_it_listens(port)
        yield urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
    finally:
        process.terminate()
        await process.wait()


def _prepare(parts: SplitResult, port: int, folder: Path, size: int) -> None:
    settings = f"""
        [databases]
        * = host={parts.hostname} port={parts.port}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {port}
        unix_socket_dir =
        auth_type = plain
        auth_file = users
        pool_mode = transaction
        server_round_robin = 1
        default_pool_size = {size}"""
    (folder / "settings").write_text("\n".join(line.strip() for line in settings.splitlines()))
    (folder / "users").write_text(f'"{parts.username}" "{parts.password}"\n')
    if (account := _account()) is not None:
        # In a folder that it stands in, it reads its files by their bare names.
        for path in (folder, *folder.iterdir()):
            os.chown(path, account, -1)


def _account() -> int | None:
    """It does not run as root."""
    return _NOBODY if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _until_it_listens(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, connected = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
            else:
                connected.close()
                await connected.wait_closed()
                return
