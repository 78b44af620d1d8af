"""What the storage service is told from outside."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from services.runtime.postgres_url import PostgresUrl
from services.runtime.settings import Address, ServiceSettings

NO_REDIS = "none"


def _checked_redis_url(url: SecretStr) -> SecretStr:
    value = url.get_secret_value()
    if value == NO_REDIS:
        return url
    try:
        parts = urlsplit(value)
        # Reading the port is what checks it.
        usable = parts.scheme in ("redis", "rediss", "unix") and parts.port != 0 and not set(value) & set(" \t\r\n")
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"must be redis://host… or rediss://host…, or `{NO_REDIS}` to do without a cache")
    return url


RedisUrl = Annotated[SecretStr, AfterValidator(_checked_redis_url)]


class StorageSettings(ServiceSettings):
    """One storage process."""

    storage_address: Address = "127.0.0.1:50052"
    """Where storage listens."""
    database_url: PostgresUrl = Field(default=SecretStr(""), validate_default=True)
    """The PostgreSQL that holds the conversations: postgresql://…"""
    database_pool_size: int = Field(default=16, ge=1, le=1_000)
    """Connections to it at most, beside two for upkeep and, for either kind, one that asks whether it answers."""
    database_prepared_statements: bool = True
    """False behind a pooler in transaction mode, such as PgBouncer."""
    database_statement_timeout_s: float = Field(default=10, gt=0, le=600)
    """How long one statement may take there."""
    database_lock_timeout_s: float = Field(default=5, gt=0, le=600)
    """How long a statement may wait there for another transaction."""
    database_wait_s: float = Field(default=30, ge=0, le=3_600)
    """How long to wait, at start, for a database that cannot be reached yet."""
    run_lease_s: float = Field(default=30, ge=5, le=600)
    """How long a run lives without renewal, where its agent asks for no other time."""
    hitl_expire_s: float = Field(default=604_800, ge=1, le=31_536_000)
    """How long a question waits for its answer, where its agent asks for no other time."""
    redis_url: RedisUrl = SecretStr(NO_REDIS)
    """The Redis or Valkey of the cache and of the runs' events: redis://… or rediss://…; `none`: neither is kept."""
    cache_mib: int = Field(default=36, ge=0, le=65_536)
    """What the cache within the process may hold, in MiB; 0 with no Redis: nothing is cached."""
    session_ttl_days: float | None = Field(default=None, gt=0, le=36_500)
    """How long a session is kept after its last change, unless it has a time of its own; not set: for good."""
    run_ttl_days: float = Field(default=30, ge=1, le=36_500)
    """How long the record of a finished run is kept; a session's last run stays."""
    run_events_ttl_s: float = Field(default=3_600, ge=1, le=2_592_000)
    """How long a finished run's events are kept."""
    upkeep_interval_s: float = Field(default=5, ge=0.05, le=3_600)
    """How often to look for what upkeep has to do: runs to end, questions to expire, what is old to delete."""
