"""What the run was made on, and with what."""

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_OURS = ("grpcio", "protobuf", "asyncpg", "redis", "uvloop")
_CHECKOUT = Path(__file__).parents[1]


def this_machine() -> Mapping[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        # Above zero, others were at work here too.
        "load_before": round(os.getloadavg()[0], 2),
        "commit": _commit(),
    }


def our_versions() -> dict[str, str]:
    return {"Python": platform.python_version()} | {name: version(name) for name in _OURS}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown"


def _commit() -> str:
    """The checkout's, and whether its files are others by now."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return f"{commit}, changed since" if _git("status", "--porcelain") else commit
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*command: str) -> str:
    done = subprocess.run(("git", "-C", str(_CHECKOUT), *command), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def memory_mib(pid: int) -> float:
    """Resident, of one process."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20
