"""Asks a service on this machine whether it serves."""

import asyncio

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from services.local.ports import reachable_address
from services.runtime.settings import split_address

CHECK_WITHIN_S = 2.0


async def serves(address: str) -> bool:
    """True once the service at the address reports SERVING."""
    target = reachable_address(address)
    if not await _listens(target):
        # Cheaper than a channel, and a refused channel would wait a second before it tries again.
        return False
    async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        try:
            response = await check(HealthCheckRequest(), timeout=CHECK_WITHIN_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(response.status == HealthCheckResponse.SERVING)


async def _listens(target: str) -> bool:
    host, port = split_address(target)
    try:
        async with asyncio.timeout(CHECK_WITHIN_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
