"""How the clients reach a service: addresses, channel options, retries, deadlines."""

import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc

from askback.client.status import error_from_rpc
from askback.client.stream import Stream

UNARY_TIMEOUT_S = 10.0
CHAT_TIMEOUT_S = 300.0
WATCH_TIMEOUT_S = 600.0
# Of a document whose size is not known; else a few minutes, and more for each byte: the service's built-in encoder
# takes about a minute for each 600 KB on two cores.
INGEST_TIMEOUT_S = 3600.0
INGEST_BASE_TIMEOUT_S = 300.0
INGEST_BYTES_A_SECOND = 5_000

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

Metadata = Sequence[tuple[str, str | bytes]]

# An RPC is sent again after UNAVAILABLE where a second try is harmless: it reads, or carries what makes it
# so (request_id, holder_id, fencing token, event sequence). Chat stays out, since its UNAVAILABLE may be
# the end of a run that failed, which another try with the same request_id would only find again;
# StreamChat has no such trouble, since its first event ends the retries. DeleteDocument stays out, since a
# second try would find nothing; IngestDocument, since its chunks would have to be kept until the answer.
_RETRIED: dict[str, tuple[str, ...]] = {
    "askback.storage.v1.SessionService": (),
    "askback.storage.v1.RunService": (),
    "askback.storage.v1.HitlService": (),
    "askback.agent.v1.AgentService": ("StreamChat", "WatchRun", "CancelRun"),
    "askback.agent.v1.KnowledgeService": ("ListDocuments", "ListCollections", "SearchKnowledge"),
}

_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            # A service without method names means all of its methods.
            "name": [
                {"service": service, **({"method": method} if method else {})}
                for service, methods in _RETRIED.items()
                for method in methods or ("",)
            ],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 4,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}

CHANNEL_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.primary_user_agent", "askback-client-python"),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.enable_retries", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that froze, or a network that swallows packets, shows within 15 s while a call is under way.
    # ping_timeout is what notices it in time; keepalive_timeout alone does not. The server must allow pings at
    # this pace (its grpc.http2.min_ping_interval_without_data_ms), or it ends quiet calls.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A service that restarts is found again within a second or so; an address that never answers is given up
    # after five (which is what the minimum means to grpc).
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A client that is made anew tries at once, however long another one in the process has found nobody there.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
)

_SCHEMES = ("dns", "ipv4", "ipv6", "unix", "unix-abstract", "xds")
_HOST_AND_PORT = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):([0-9]{1,5})")

ClientT = TypeVar("ClientT", bound="ServiceClient")
StubT = TypeVar("StubT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


def target_of(address: str) -> str:
    """The gRPC target for `host:port`, several `ip:port` with commas between, or a target as it is.

    A host name goes through DNS, and calls take turns over all the addresses that it has.
    """
    parts = [part.strip() for part in address.split(",")]
    if len(parts) == 1 and parts[0].partition(":")[0] in _SCHEMES:
        return parts[0]
    if not all(_has_host_and_port(part) for part in parts):
        raise ValueError("address: must be host:port, or several ip:port with commas between")
    if len(parts) == 1:
        return f"dns:///{parts[0]}"
    versions = {_ip_version(part) for part in parts}
    if versions == {4} or versions == {6}:
        return f"ipv{versions.pop()}:{','.join(parts)}"
    raise ValueError(
        "address: several must all be IPv4 or all IPv6, each with its port; "
        "for several host names use one DNS name that resolves to all of them"
    )


def _has_host_and_port(address: str) -> bool:
    found = _HOST_AND_PORT.fullmatch(address)
    return found is not None and 1 <= int(found[1]) <= 65535


def _ip_version(address: str) -> int | None:
    host = address.rpartition(":")[0]
    try:
        return ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return None


class ServiceClient:
    """A channel to one service, open between `async with` and its end."""

    def __init__(self, address: str, *, credentials: grpc.ChannelCredentials | None = None) -> None:
        """Without `credentials` the channel is plain text."""
        self._address = address
        self._target = target_of(address)
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._stubs: dict[object, Any] = {}

    @property
    def address(self) -> str:
        return self._address

    async def __aenter__(self: ClientT) -> ClientT:
        if self._channel is not None:
            raise RuntimeError(f"{type(self).__name__} is open already")
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(self._target, options=CHANNEL_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(self._target, self._credentials, options=CHANNEL_OPTIONS)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the channel and every call on it."""
        channel, self._channel = self._channel, None
        self._stubs.clear()
        if channel is not None:
            await channel.close()

    def _stub(self, make: Callable[[grpc.aio.Channel], StubT]) -> StubT:
        if self._channel is None:
            raise RuntimeError(f"{type(self).__name__} is not open: use it in `async with`")
        if make not in self._stubs:
            self._stubs[make] = make(self._channel)
        stub: StubT = self._stubs[make]
        return stub

    async def _answer(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        timeout: float | None,
        metadata: Metadata | None,
        *,
        default_timeout: float = UNARY_TIMEOUT_S,
    ) -> ResponseT:
        """The response of a unary call; its failure is raised as AskbackError."""
        deadline = default_timeout if timeout is None else timeout
        try:
            return await method(request, timeout=deadline, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error

    def _stream(
        self,
        method: "grpc.aio.UnaryStreamMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        timeout: float | None,
        metadata: Metadata | None,
        *,
        default_timeout: float,
    ) -> Stream[ResponseT]:
        deadline = default_timeout if timeout is None else timeout
        return Stream(lambda: method(request, timeout=deadline, metadata=metadata))


def new_request_id() -> str:
    return uuid.uuid4().hex
