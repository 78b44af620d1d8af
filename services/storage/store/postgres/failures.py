"""What the driver raises, as what the port promises."""

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from services.runtime.errors import ServiceError, TimeLimit
from services.storage.errors import Contention, DatabaseUnavailable, Overloaded

FAILURES: tuple[type[Exception], ...] = (DBAPIError, PoolTimeout, OSError, TimeoutError)
"""What may come out of the engine for reasons that lie outside of this service."""

_RETRY_AFTER_S = 0.5

_SERIALIZATION = ("40001", "40P01")
_LOCK_TIMEOUT = "55P03"
_STATEMENT_TIMEOUT = "57014"
_TOO_MANY_CONNECTIONS = "53300"
# Connection failures, refused log-ins, missing databases, shutdowns, resources gone, and a standby that was
# promoted away from under us and takes no writes.
_UNAVAILABLE = ("08", "28", "3D", "53", "57P", "58", "25006")


def is_retryable(error: Exception) -> bool:
    """Whether the same transaction may well succeed when it is run anew."""
    return _sqlstate(error) in _SERIALIZATION


def as_service_error(error: Exception, *, statement_timeout_s: float) -> ServiceError | None:
    """None where it is a fault of ours."""
    if isinstance(error, PoolTimeout):
        return Overloaded(retry_after_s=_RETRY_AFTER_S)
    if isinstance(error, DBAPIError):
        state = _sqlstate(error)
        if state in (*_SERIALIZATION, _LOCK_TIMEOUT):
            return Contention()
        if state == _STATEMENT_TIMEOUT:
            return TimeLimit("a database statement", limit_s=statement_timeout_s)
        if state == _TOO_MANY_CONNECTIONS:
            return Overloaded(retry_after_s=_RETRY_AFTER_S)
        if error.connection_invalidated or state.startswith(_UNAVAILABLE):
            return DatabaseUnavailable()
        return None
    return DatabaseUnavailable()


def _sqlstate(error: Exception) -> str:
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""
