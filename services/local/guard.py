"""Turns itself into a server that cannot outlive the process that asked for it.

Run as a script, with an order in JSON and then the command. On Linux the kernel is told to signal the
server when its parent dies, and this process becomes the server. Elsewhere it stays beside the server and
watches a pipe whose other end only the parent holds: when that closes, it stops the server.

It runs without site-packages, so that it costs little, and imports nothing of the project.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

try:
    # Here, since after the change of user Python's own folder may be closed.
    import ctypes
except ImportError:
    # Whoever starts this looks first, and then gives a pipe to watch instead.
    pass

PR_SET_PDEATHSIG = 1


def main() -> None:
    order: dict[str, Any] = json.loads(sys.argv[1])
    command = sys.argv[2:]
    os.umask(0o077)
    # Before the change of user: the folder's parents may be closed to that user, a working directory is not.
    os.chdir(order["cwd"])
    if order["uid"] is not None:
        os.setgroups([])
        os.setgid(order["gid"])
        os.setuid(order["uid"])
    if order["watch"] is not None:
        hold(command, watch=order["watch"], stop=order["stop"], stop_within_s=order["stop_within_s"])
    # After the change of user, which would clear it.
    signal_on_parents_death(order["stop"])
    if os.getppid() != order["parent"]:
        sys.exit(f"{command[0]}: the process that asked for it is gone")
    os.execv(command[0], command)


def signal_on_parents_death(number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def hold(command: list[str], *, watch: int, stop: int, stop_within_s: float) -> None:
    os.set_inheritable(watch, False)
    child = subprocess.Popen(command, close_fds=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, lambda caught, _frame: child.send_signal(caught))

    def stop_when_parent_dies() -> None:
        os.read(watch, 1)
        child.send_signal(stop)
        try:
            child.wait(stop_within_s)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=stop_when_parent_dies, daemon=True).start()
    code = child.wait()
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{' '.join(sys.argv[2:3])}: {error}")
