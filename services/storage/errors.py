"""What can go wrong in the storage service, each with the reason and keys of error_reason.proto."""

from services.runtime.errors import Kind, ServiceError
from services.storage.models import HitlState, RunStatus


class SessionNotFound(ServiceError):
    kind = Kind.NOT_FOUND
    reason = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str):
        super().__init__("the user has no such session", metadata={"session_id": session_id})


class MessageNotFound(ServiceError):
    kind = Kind.NOT_FOUND
    reason = "MESSAGE_NOT_FOUND"

    def __init__(self, message_id: str):
        super().__init__("the session has no such message", metadata={"message_id": message_id})


class RunNotFound(ServiceError):
    kind = Kind.NOT_FOUND
    reason = "RUN_NOT_FOUND"

    def __init__(self, run_id: str):
        super().__init__("the user has no such run", metadata={"run_id": run_id})


class HitlTaskNotFound(ServiceError):
    kind = Kind.NOT_FOUND
    reason = "HITL_TASK_NOT_FOUND"

    def __init__(self, task_id: str):
        super().__init__("no such question was put to the user", metadata={"task_id": task_id})


class MessageIdExists(ServiceError):
    kind = Kind.ALREADY_EXISTS
    reason = "MESSAGE_ID_EXISTS"

    def __init__(self, message_id: str):
        super().__init__("the session has a message of this id", metadata={"message_id": message_id})


class RequestIdReused(ServiceError):
    """The request_id came before, with another body."""

    kind = Kind.INVALID_ARGUMENT
    reason = "REQUEST_ID_REUSED"

    def __init__(self) -> None:
        super().__init__("request_id: was used before with another request")


class RevisionMismatch(ServiceError):
    """The session is not at the revision that the writer has seen; 0 stands for one that does not exist."""

    kind = Kind.ABORTED
    reason = "REVISION_MISMATCH"

    def __init__(self, *, expected: int, actual: int):
        super().__init__(
            f"the session is at revision {actual}, not {expected}",
            metadata={"expected_revision": str(expected), "revision": str(actual)},
        )


class RunInProgress(ServiceError):
    kind = Kind.ABORTED
    reason = "RUN_IN_PROGRESS"

    def __init__(self, active_run_id: str, *, retry_after_s: float):
        super().__init__(
            "another run holds the session", metadata={"active_run_id": active_run_id}, retry_after_s=retry_after_s
        )


class LeaseLost(ServiceError):
    """The token is stale, or the run has ended: whoever holds it stops its work."""

    kind = Kind.ABORTED
    reason = "LEASE_LOST"

    def __init__(self, run_id: str):
        super().__init__("the run is no longer the caller's to write", metadata={"run_id": run_id})


class SessionDeleted(ServiceError):
    """The request took effect in a session that was deleted since; it does not take effect again."""

    kind = Kind.ABORTED
    reason = "SESSION_DELETED"

    def __init__(self, session_id: str):
        super().__init__("the session was deleted after this request", metadata={"session_id": session_id})


class Contention(ServiceError):
    kind = Kind.ABORTED
    reason = "CONTENTION"

    def __init__(self) -> None:
        super().__init__("too many writers at once; retry")


class RunNotRetryable(ServiceError):
    kind = Kind.FAILED_PRECONDITION
    reason = "RUN_NOT_RETRYABLE"

    def __init__(self, run_id: str, *, status: RunStatus):
        super().__init__(
            "only the session's last turn, where it FAILED or was CANCELLED, can be retried",
            metadata={"run_id": run_id, "status": status.name},
        )


class HitlTaskNotPending(ServiceError):
    kind = Kind.FAILED_PRECONDITION
    reason = "HITL_TASK_NOT_PENDING"

    def __init__(self, task_id: str, *, state: HitlState):
        super().__init__(
            f"the question is {state.name}, not PENDING", metadata={"task_id": task_id, "state": state.name}
        )


class HitlTaskPending(ServiceError):
    kind = Kind.FAILED_PRECONDITION
    reason = "HITL_TASK_PENDING"

    def __init__(self, task_id: str):
        super().__init__(
            "a question waits for the user, and pending_hitl_policy is REJECT", metadata={"task_id": task_id}
        )


class Overloaded(ServiceError):
    kind = Kind.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"

    def __init__(self, *, retry_after_s: float):
        super().__init__("every connection to the database is busy", retry_after_s=retry_after_s)


class DatabaseUnavailable(ServiceError):
    kind = Kind.UNAVAILABLE
    reason = "DATABASE_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("the database cannot be reached")


class EventLogUnavailable(ServiceError):
    """Runs go on without it; what they say is stored at their end all the same."""

    kind = Kind.UNAVAILABLE
    reason = "EVENT_LOG_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("the event log cannot be reached")
