"""The peers' environment: made once from the lock beside this file, and anew whenever that changes."""

import asyncio
import hashlib
import sys
import venv
from pathlib import Path

from benchmarks.clients import SubjectFailed
from services.local.process import Report

LOCK = Path(__file__).with_name("requirements.txt")
_STAMP = "installed-from"


async def peers_python(folder: Path, *, report: Report) -> Path:
    """The environment's Python; SubjectFailed where it cannot be made."""
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    stamp, python = folder / _STAMP, folder / "bin" / "python"
    if _text_of(stamp) == wanted:
        return python
    report("Setting up the environment of the peers (once): about a minute, some 310 MB")
    # Anew, from an empty folder.
    await asyncio.to_thread(venv.create, folder, clear=True, with_pip=True)
    options = ("install", "-qq", "--disable-pip-version-check", "--require-hashes", "-r", str(LOCK))
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-m", "pip", *options), stdout=sys.stderr, stderr=sys.stderr
    )
    if await process.wait() != 0:
        raise SubjectFailed("the environment of the peers could not be made; see above")
    stamp.write_text(wanted, encoding="ascii")
    return python


def _text_of(file: Path) -> str:
    return file.read_text(encoding="ascii") if file.exists() else ""
