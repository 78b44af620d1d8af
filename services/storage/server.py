"""Builds the storage service: the one place where its parts are chosen and put together."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import grpc.aio
import structlog

from askback.storage.v1 import hitl_service_pb2, run_service_pb2, session_service_pb2
from askback.storage.v1.hitl_service_pb2_grpc import add_HitlServiceServicer_to_server
from askback.storage.v1.run_service_pb2_grpc import add_RunServiceServicer_to_server
from askback.storage.v1.session_service_pb2_grpc import add_SessionServiceServicer_to_server
from services.runtime.server import RunningServer, ServerOptions, StartupError, running_server
from services.storage.errors import DatabaseUnavailable
from services.storage.rpc.encoding import ReplyCodec
from services.storage.rpc.hitl_service import HitlServicer
from services.storage.rpc.run_service import RunServicer
from services.storage.rpc.session_service import SessionServicer
from services.storage.settings import NO_REDIS, StorageSettings
from services.storage.store.base import ConversationStorage
from services.storage.store.cached import CachedConversationStorage
from services.storage.store.events import NoEventLog, RedisEventLog, RunEventLog
from services.storage.store.postgres import (
    PostgresConversationStorage,
    PostgresLimits,
    PostgresUpkeep,
    StatementFault,
)
from services.storage.store.redis_connection import RedisConnection
from services.storage.upkeep import running_upkeep

SERVICE_NAMES = tuple(
    service.full_name
    for module in (session_service_pb2, run_service_pb2, hitl_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 2.0

_log = structlog.get_logger()


@asynccontextmanager
async def storage_server(settings: StorageSettings) -> AsyncIterator[RunningServer]:
    """Brings the database to this version and serves until left; raises StartupError where it cannot."""
    url = settings.database_url.get_secret_value()
    limits = _limits(settings)
    async with AsyncExitStack() as stack:
        redis = _redis(settings)
        if redis is not None:
            stack.push_async_callback(redis.close)
        events = _events(settings, redis)
        stack.push_async_callback(events.close)
        postgres = await _open_store(url, limits, events, patience_s=settings.database_wait_s)
        store = _cached(postgres, settings, redis)
        stack.push_async_callback(store.close)
        upkeep = PostgresUpkeep(url, limits=limits, events=events, run_ttl=timedelta(days=settings.run_ttl_days))
        stack.push_async_callback(upkeep.close)
        await stack.enter_async_context(running_upkeep(upkeep, interval_s=settings.upkeep_interval_s))
        yield await stack.enter_async_context(
            running_server(
                options=ServerOptions.from_settings(settings, address=settings.storage_address),
                register=lambda server: _register(server, store, settings),
                service_names=SERVICE_NAMES,
                ready=lambda: _answers(store),
            )
        )


def _limits(settings: StorageSettings) -> PostgresLimits:
    return PostgresLimits(
        pool_size=settings.database_pool_size,
        statement_timeout_s=settings.database_statement_timeout_s,
        lock_timeout_s=settings.database_lock_timeout_s,
        prepared_statements=settings.database_prepared_statements,
        session_ttl=timedelta(days=settings.session_ttl_days) if settings.session_ttl_days else None,
    )


def _redis(settings: StorageSettings) -> RedisConnection | None:
    url = settings.redis_url.get_secret_value()
    if url == NO_REDIS:
        return None
    try:
        return RedisConnection.open(url)
    except ValueError as error:
        raise StartupError(f"ASKBACK_REDIS_URL: {error}") from None


def _cached(
    store: ConversationStorage, settings: StorageSettings, redis: RedisConnection | None
) -> ConversationStorage:
    if redis is None and not settings.cache_mib:
        return store
    local_max_bytes = settings.cache_mib * 1024 * 1024
    return CachedConversationStorage(store, codec=ReplyCodec(), redis=redis, local_max_bytes=local_max_bytes)


def _events(settings: StorageSettings, redis: RedisConnection | None) -> RunEventLog:
    if redis is None:
        return NoEventLog()
    return RedisEventLog(redis, ttl=timedelta(seconds=settings.run_events_ttl_s))


def _register(server: grpc.aio.Server, store: ConversationStorage, settings: StorageSettings) -> None:
    lease, hitl_expiry = timedelta(seconds=settings.run_lease_s), timedelta(seconds=settings.hitl_expire_s)
    add_SessionServiceServicer_to_server(SessionServicer(store), server)
    # The method that it lacks is its base class's, which answers NOT_IMPLEMENTED.
    runs = RunServicer(store, lease=lease, hitl_expiry=hitl_expiry)  # type: ignore[abstract]
    add_RunServiceServicer_to_server(runs, server)
    add_HitlServiceServicer_to_server(HitlServicer(store), server)


async def _answers(store: ConversationStorage) -> bool:
    await store.check()
    return True


async def _open_store(
    url: str, limits: PostgresLimits, events: RunEventLog, *, patience_s: float
) -> ConversationStorage:
    """The store, once its database can be reached: services and their database are often started together."""
    give_up, retry_s = time.monotonic() + patience_s, _FIRST_RETRY_S
    while True:
        try:
            return await PostgresConversationStorage.open(url, limits=limits, events=events)
        except DatabaseUnavailable as error:
            if time.monotonic() + retry_s > give_up:
                raise StartupError(f"the database of ASKBACK_DATABASE_URL cannot be reached: {_cause(error)}") from None
            if retry_s == _FIRST_RETRY_S:
                _log.warning("database_awaited", cause=_cause(error), patience_s=patience_s)
        except StatementFault as fault:
            # The driver does not understand an option in the address.
            raise StartupError(f"ASKBACK_DATABASE_URL: cannot be used: {fault}") from None
        await asyncio.sleep(retry_s)
        retry_s = min(2 * retry_s, _LONGEST_RETRY_S)


def _cause(error: Exception) -> str:
    """What the driver calls it; its own text may hold names and secrets of the address."""
    return type(error.__cause__ or error).__name__
