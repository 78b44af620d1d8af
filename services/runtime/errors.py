"""The errors that a service raises towards its callers, free of any wire type.

A service's own errors derive from ServiceError; one interceptor turns them into a status
(`interceptors/errors.py`). What is not a ServiceError reaches the caller as INTERNAL with a fixed text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What sort of failure it is; each is one gRPC status code, whose number is its value."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class ServiceError(Exception):
    """A failure that its caller is told of.

    `str(error)` is the status text: for developers, and never a user's words or a secret. `metadata`
    holds the keys that error_reason.proto names for the reason.
    """

    kind: Kind
    reason: str

    def __init__(self, text: str, *, metadata: dict[str, str] | None = None, retry_after_s: float | None = None):
        super().__init__(text)
        self.metadata = metadata or {}
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class FieldViolation:
    """One field that may not hold what it holds; `description` says what it may."""

    field: str
    description: str


class InvalidField(ServiceError):
    """One or more fields hold what they may not."""

    kind = Kind.INVALID_ARGUMENT
    reason = "INVALID_FIELD"

    def __init__(self, violations: Sequence[FieldViolation]):
        self.violations = tuple(violations)
        super().__init__("; ".join(f"{violation.field}: {violation.description}" for violation in self.violations))

    @classmethod
    def of(cls, field: str, description: str) -> "InvalidField":
        return cls([FieldViolation(field, description)])


class InvalidPageToken(ServiceError):
    kind = Kind.INVALID_ARGUMENT
    reason = "INVALID_PAGE_TOKEN"

    def __init__(self) -> None:
        super().__init__("page_token: not a token of this query")


class NotImplementedYet(ServiceError):
    """The call, or what it asks for, is in the API and not in this version."""

    kind = Kind.UNIMPLEMENTED
    reason = "NOT_IMPLEMENTED"

    def __init__(self, feature: str):
        super().__init__(f"{feature} is not implemented in this version", metadata={"feature": feature})


class TooLarge(ServiceError):
    """A whole request, document or session is past its limit; both numbers are bytes unless `unit` says."""

    kind = Kind.RESOURCE_EXHAUSTED
    reason = "TOO_LARGE"

    def __init__(self, what: str, *, limit: int, actual: int, unit: str = "bytes"):
        super().__init__(
            f"{what} may hold {limit} {unit}, not {actual}", metadata={"limit": str(limit), "actual": str(actual)}
        )


class TimeLimit(ServiceError):
    """A limit of the service's own was passed."""

    kind = Kind.DEADLINE_EXCEEDED
    reason = "TIME_LIMIT"

    def __init__(self, what: str, *, limit_s: float):
        super().__init__(
            f"{what} took more than {limit_s:g} s", metadata={"what": what, "limit_seconds": f"{limit_s:g}"}
        )


class ShuttingDown(ServiceError):
    kind = Kind.UNAVAILABLE
    reason = "SHUTTING_DOWN"

    def __init__(self) -> None:
        super().__init__("the service is shutting down; another replica will answer")


class Internal(ServiceError):
    """A fault of ours; the log has it under the request's id."""

    kind = Kind.INTERNAL
    reason = "INTERNAL"

    def __init__(self, request_id: str):
        super().__init__(
            "an internal error; the service's log has it under the request's id", metadata={"request_id": request_id}
        )
