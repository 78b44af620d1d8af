"""Told before the installation: that this machine's account cannot run the embedded PostgreSQL.

It runs before anything is installed, with the standard library alone, and only when it is certain: `run` may be
given a server by the environment or by `.env`, or find a database that was made before.
"""

import os
import re
import sys
from pathlib import Path

from services.local.accounts import check_that_we_have_a_name, server_account
from services.local.errors import LocalError

_SETTING = "ASKBACK_DATABASE_URL"


def main(command: str) -> int:
    if command == "run" and _may_find_a_database():
        return 0
    try:
        check_that_we_have_a_name()
        # Whoever owns data that are there already decides; these are not there.
        server_account(Path(os.devnull) / "none")
    except LocalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _may_find_a_database() -> bool:
    if os.environ.get(_SETTING) or os.environ.get("ASKBACK_HOME") or Path(".askback", "postgres").exists():
        return True
    try:
        env_file = Path(".env").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"(?im)^\s*(export\s+)?ASKBACK_(DATABASE_URL|HOME)\s*=", env_file) is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
