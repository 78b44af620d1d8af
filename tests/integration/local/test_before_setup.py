import asyncio
import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


async def test_the_check_before_the_installation_needs_nothing_that_is_installed() -> None:
    # -S: without site-packages, as before the installation.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-m", "services.local.before_setup", "demo"),
        cwd=CHECKOUT,
        env={name: value for name, value in os.environ.items() if not name.startswith("ASKBACK_")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert (*await process.communicate(), process.returncode) == (b"", b"", 0)
