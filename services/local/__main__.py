"""The whole system on one machine: `run` serves until Ctrl-C, `demo` shows one conversation."""

import argparse
import asyncio
import sys

from services.local.demo import demo
from services.local.run import run, tell
from services.local.settings import read_settings, unknown_settings
from services.runtime.settings import SettingsError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m services.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="start everything and stay in the foreground until Ctrl-C")
    commands.add_parser("demo", help="one conversation on a private copy, printed as it streams")
    if parser.parse_args().command == "demo":
        return asyncio.run(demo())
    try:
        settings, placeholders = read_settings()
    except SettingsError as error:
        tell(str(error), to_stderr=True)
        return 2
    for line in unknown_settings():
        tell(line)
    for name in placeholders:
        tell(f"{name} holds a placeholder and counts as not set")
    return asyncio.run(run(settings))


if __name__ == "__main__":
    sys.exit(main())
