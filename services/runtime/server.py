"""One gRPC server: it binds, reports health, serves, drains, and ends with no call left running."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2_grpc

from services.runtime.health import Health
from services.runtime.interceptors import LiveCalls, chain
from services.runtime.reflection import add_reflection
from services.runtime.settings import ServiceSettings, split_address

_log = structlog.get_logger()

# Whoever watches health is told NOT_SERVING before the watch is ended.
_LAST_WORD_S = 0.1


class StartupError(Exception):
    """The service cannot start; the text is one line, for whoever starts it."""


class AddressInUse(StartupError):
    def __init__(self, address: str):
        super().__init__(f"{address} is in use by another process")
        self.address = address


class AddressUnusable(StartupError):
    def __init__(self, address: str, why: str):
        super().__init__(f"cannot listen on {address}: {why}")
        self.address = address


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    address: str
    """host:port; port 0 takes a free one."""
    reflection: bool = True
    """Whether server reflection is served."""
    drain_s: float = 30.0
    """How long calls under way may go on once the server stops."""
    unwind_s: float = 5.0
    """How long a handler then has for its `finally`, before its call is ended over its head."""
    unary_limit_s: float = 60.0
    """How long a unary call may take."""
    stream_limit_s: float = 900.0
    """How long a call may take that streams either way."""
    limits_s: Mapping[str, float] = field(default_factory=dict)
    """Other limits, by method: /package.Service/Method."""
    max_message_bytes: int = 16 * 1024 * 1024
    """The largest message, received or sent."""
    max_concurrent_streams: int = 1000
    """Calls at once on one connection; more wait at the caller's side."""
    ready_interval_s: float = 1.0
    """How often readiness is asked for."""
    ready_limit_s: float = 2.0
    """After how long no answer means not ready."""

    @classmethod
    def from_settings(
        cls, settings: ServiceSettings, *, address: str, limits_s: Mapping[str, float] | None = None
    ) -> "ServerOptions":
        return cls(
            address=address, reflection=settings.reflection, drain_s=settings.drain_s, limits_s=dict(limits_s or {})
        )

    def for_grpc(self) -> list[tuple[str, Any]]:
        return [
            # Two processes on one port would share its calls, unnoticed.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_concurrent_streams", self.max_concurrent_streams),
            # Callers may ping every 10 s, with a call under way or none; half of that allows for jitter.
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            # A caller that has silently gone is noticed within 40 s, and its calls are cancelled. The keepalive
            # timeout alone does not notice a frozen peer.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.ping_timeout_ms", 10_000),
        ]


class RunningServer:
    """A server that takes calls."""

    def __init__(self, *, address: str, port: int, live_calls: LiveCalls, hurry: asyncio.Event):
        self.address = address
        """host:port, with the port that was bound."""
        self.port = port
        self._live_calls = live_calls
        self._hurry = hurry

    @property
    def live_calls(self) -> int:
        """How many calls are running; health and reflection do not count."""
        return len(self._live_calls)

    def hurry(self) -> None:
        """Stopping, now or later, cancels what runs at once, and does not wait for a handler that hangs."""
        self._hurry.set()


@asynccontextmanager
async def running_server(
    *,
    options: ServerOptions,
    register: Callable[[grpc.aio.Server], None],
    service_names: Sequence[str],
    ready: Callable[[], Awaitable[bool]] | None = None,
    wind_down: Callable[[], None] | None = None,
) -> AsyncIterator[RunningServer]:
    """Serves what `register` adds, until left; raises StartupError where it cannot bind.

    On leaving, health turns NOT_SERVING, new calls are refused, and those under way have `drain_s` to end.
    `wind_down`, where there is one, then asks the rest to end in their own way, for `unwind_s`. What still runs
    is cancelled and told SHUTTING_DOWN. It returns once no handler is running any more.
    """
    live_calls, hurry = LiveCalls(), asyncio.Event()
    server = grpc.aio.server(
        interceptors=[
            chain(
                live_calls=live_calls,
                unary_limit_s=options.unary_limit_s,
                stream_limit_s=options.stream_limit_s,
                limits_s=options.limits_s,
            )
        ],
        options=options.for_grpc(),
    )
    health = Health(service_names)
    health_name = "grpc.health.v1.Health"
    health_pb2_grpc.add_HealthServicer_to_server(health.servicer, server)
    register(server)
    if options.reflection:
        add_reflection(server, [*service_names, health_name])

    host, port = await _bind(server, options.address)
    if ready is None:
        await health.set(serving=True)
    else:
        await health.ask(ready, limit_s=options.ready_limit_s)
    await server.start()
    following = ready and asyncio.create_task(
        health.follow(ready, interval_s=options.ready_interval_s, limit_s=options.ready_limit_s)
    )
    try:
        yield RunningServer(address=f"{host}:{port}", port=port, live_calls=live_calls, hurry=hurry)
    finally:
        if following:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        try:
            await health.stop()
            await _drain(server, options=options, live_calls=live_calls, hurry=hurry, wind_down=wind_down)
        finally:
            # A no-op, unless draining itself was cut short.
            await server.stop(0)


async def _drain(
    server: grpc.aio.Server,
    *,
    options: ServerOptions,
    live_calls: LiveCalls,
    hurry: asyncio.Event,
    wind_down: Callable[[], None] | None,
) -> None:
    live_calls.stopping = True
    refusing = asyncio.create_task(server.stop(options.drain_s + 2 * options.unwind_s))
    hurried = asyncio.create_task(hurry.wait())
    try:
        await _first_of(hurried, live_calls.wait(), limit_s=options.drain_s)
        if live_calls and wind_down is not None:
            _log.warning("calls_wound_down", calls=len(live_calls))
            wind_down()
            await _first_of(live_calls.wait(), limit_s=options.unwind_s)
        if live_calls:
            _log.warning("calls_cut_off", calls=len(live_calls))
            live_calls.cut_off()
        await _first_of(live_calls.wait_for_plumbing(), limit_s=_LAST_WORD_S)
        live_calls.cut_off_plumbing()
        await _first_of(live_calls.wait(), limit_s=options.unwind_s)
        if live_calls:
            _log.warning("calls_still_running", calls=len(live_calls))
        await _first_of(hurried, live_calls.wait(), limit_s=None)
        await (server.stop(0) if hurry.is_set() else refusing)
    finally:
        for task in (hurried, refusing):
            task.cancel()
        await asyncio.gather(hurried, refusing, return_exceptions=True)


async def _first_of(*awaited: Any, limit_s: float | None) -> None:
    """Waits for one of them to end, within the limit; futures go on, coroutines do not."""
    given = [each for each in awaited if isinstance(each, asyncio.Future)]
    made = [asyncio.ensure_future(each) for each in awaited if not isinstance(each, asyncio.Future)]
    try:
        await asyncio.wait([*given, *made], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)


async def _bind(server: grpc.aio.Server, address: str) -> tuple[str, int]:
    host, port = split_address(address)
    await _check_free(address, host=host.strip("[]"), port=port)
    try:
        return host, server.add_insecure_port(address)
    except RuntimeError:
        # Between the check and here.
        raise AddressInUse(address) from None


async def _check_free(address: str, *, host: str, port: int) -> None:
    """grpc tells only that binding failed, and takes a name of whose addresses one alone is free."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise AddressUnusable(address, error.strerror or "no such host") from None
    failures: list[OSError] = []
    for family, kind, protocol, _, bind_to in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(bind_to)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(address) from None
            failures.append(error)
    if len(failures) == len(found):
        raise AddressUnusable(address, failures[0].strerror or "it cannot be bound")
