"""What the driver raises, as what the port promises."""

import asyncpg

from services.runtime.errors import TimeLimit
from services.storage.errors import Contention, DatabaseUnavailable, Overloaded


class PoolTimeout(Exception):
    """Every connection of the pool stayed busy for as long as a call may wait."""


FAILURES: tuple[type[Exception], ...] = (
    PoolTimeout,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""What may come out of the pool and the driver."""

RETRY_AFTER_S = 0.5
UNIQUE_VIOLATION = "23505"

_SERIALIZATION = ("40001", "40P01")
_LOCK_TIMEOUT = "55P03"
_STATEMENT_TIMEOUT = "57014"
_TOO_MANY_CONNECTIONS = "53300"
# Connection failures, refused log-ins, missing databases, shutdowns, resources gone, and a standby that was
# promoted away from under us and takes no writes.
_UNAVAILABLE = ("08", "28", "3D", "53", "57P", "58", "25006")


class StatementFault(Exception):
    """A statement failed for a reason of ours, or by a constraint that its caller knows.

    It tells nothing of the driver's own text, which quotes what users wrote.
    """

    def __init__(self, error: Exception):
        self.sqlstate = sqlstate(error)
        self.constraint = str(getattr(error, "constraint_name", None) or "")
        super().__init__(f"{type(error).__name__} {self.sqlstate} {self.constraint}".rstrip())


def is_retryable(error: Exception) -> bool:
    """Whether the same transaction may well succeed when it is run anew: it has had no effect."""
    # A table was changed since a statement on it was prepared; the driver has forgotten the old one by now.
    return sqlstate(error) in _SERIALIZATION or isinstance(error, asyncpg.InvalidCachedStatementError)


def is_of_server(error: BaseException) -> bool:
    """Whether it tells of the server rather than of the statement."""
    return isinstance(error, asyncpg.PostgresError) and sqlstate(error).startswith(_UNAVAILABLE)


def as_port_error(error: Exception, *, statement_timeout_s: float) -> Exception:
    """What the port raises for it; a StatementFault where that knows nothing of the kind."""
    if isinstance(error, PoolTimeout):
        return Overloaded(retry_after_s=RETRY_AFTER_S)
    state = sqlstate(error)
    if state in (*_SERIALIZATION, _LOCK_TIMEOUT):
        return Contention()
    if state == _STATEMENT_TIMEOUT:
        return TimeLimit("a database statement", limit_s=statement_timeout_s)
    if state == _TOO_MANY_CONNECTIONS:
        return Overloaded(retry_after_s=RETRY_AFTER_S)
    if _is_unavailability(error, state):
        return DatabaseUnavailable()
    return StatementFault(error)


def sqlstate(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def _is_unavailability(error: Exception, state: str) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        return state.startswith(_UNAVAILABLE)
    # What the driver refuses to send is a ValueError. Whatever else it raises by itself tells of a connection
    # that is closed, or of a server that does not speak as it should.
    return isinstance(error, OSError) or not isinstance(error, ValueError)
