"""The store over PostgreSQL, which holds the truth."""

from services.storage.store.postgres.database import PostgresLimits
from services.storage.store.postgres.failures import StatementFault
from services.storage.store.postgres.housekeeping import PostgresUpkeep
from services.storage.store.postgres.storage import PostgresConversationStorage

__all__ = ["PostgresConversationStorage", "PostgresLimits", "PostgresUpkeep", "StatementFault"]
