"""What the storage service is told from outside."""

from pydantic import Field, SecretStr

from services.runtime.postgres_url import PostgresUrl
from services.runtime.settings import Address, NotInThisVersion, ServiceSettings


class StorageSettings(ServiceSettings):
    """One storage process."""

    storage_address: Address = "127.0.0.1:50052"
    """Where storage listens."""
    database_url: PostgresUrl = Field(default=SecretStr(""), validate_default=True)
    """The PostgreSQL that holds the conversations: postgresql://…"""
    database_pool_size: int = Field(default=16, ge=1, le=1_000)
    """Connections to it at most, beside one that asks whether it answers."""
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

    run_events_ttl_s: NotInThisVersion = None
    """Not in this version: how long a finished run's events are kept."""
