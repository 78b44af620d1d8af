"""The store over PostgreSQL, which holds the truth."""

from services.storage.store.postgres.database import PostgresLimits
from services.storage.store.postgres.failures import StatementFault
from services.storage.store.postgres.storage import PostgresConversationStorage
from services.storage.store.postgres.upkeep import PostgresUpkeep

__all__ = ["PostgresConversationStorage", "PostgresLimits", "PostgresUpkeep", "StatementFault"]
