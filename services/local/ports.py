"""Ports and addresses on this machine."""

import socket
from collections.abc import Mapping

from services.local.errors import LocalError
from services.runtime.settings import split_address

LOOPBACK = "127.0.0.1"
ANY_TO_LOOPBACK = {"0.0.0.0": LOOPBACK, "[::]": "[::1]"}
_SAME_HOST = {"localhost": LOOPBACK}


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def settle_address(setting: str, address: str) -> str:
    """The address with a real port; LocalError, which names the setting, where it cannot be listened on."""
    host, port = split_address(address)
    try:
        family, _, _, _, where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As a server does: the last one's connections that linger are no hindrance, a listener is.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen()
            port = probe.getsockname()[1]
    except OSError as error:
        raise LocalError(
            f"{address} cannot be listened on ({error.strerror}); stop what listens there, "
            f"or set {setting} to another address"
        ) from None
    return f"{host}:{port}"


def check_addresses(addresses: Mapping[str, str]) -> None:
    """LocalError with a line for each setting whose address cannot be listened on."""
    lines: list[str] = []
    for setting, address in addresses.items():
        try:
            settle_address(setting, address)
        except LocalError as error:
            lines.append(str(error))
    if lines:
        raise LocalError("\n".join(lines))


def collide(one: str, other: str) -> bool:
    """Whether two servers cannot both listen on their addresses; port 0 is a free port of each one's own."""
    (host, port), (other_host, other_port) = map(split_address, (one, other))
    hosts = {_SAME_HOST.get(each.lower(), each.lower()) for each in (host, other_host)}
    return port == other_port != 0 and (len(hosts) == 1 or not hosts.isdisjoint(ANY_TO_LOOPBACK))


def reachable_address(address: str) -> str:
    """Where a client on this machine finds a server that listens on the address."""
    host, port = split_address(address)
    return f"{ANY_TO_LOOPBACK.get(host, host)}:{port}"
