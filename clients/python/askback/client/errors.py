"""What a failed call raises.

AskbackError                     every failure of a call; also codes that have no class below
├── Cancelled                    the server, or someone between, gave the call up
├── InvalidArgument
│   ├── InvalidField             field_violations says which fields, and what each may hold
│   ├── InvalidPageToken
│   ├── RequestIdReused          the request_id was used before with another request
│   └── DocumentUnreadable
├── NotFound                     also where it is another user's
│   ├── SessionNotFound
│   ├── RunNotFound
│   ├── HitlTaskNotFound
│   ├── DocumentNotFound
│   ├── MessageNotFound
│   └── CollectionNotFound
├── AlreadyExists
│   └── MessageIdExists
├── Aborted
│   ├── RevisionMismatch         read the session again, then retry
│   ├── RunInProgress            metadata["active_run_id"] is in the way; retry_after says when to retry
│   ├── LeaseLost                the run is another's by now: stop the work
│   ├── SessionDeleted
│   ├── RunReplaced
│   └── Contention               too many writers at once: retry
├── FailedPrecondition
│   ├── HitlTaskNotPending       metadata["state"] says what became of the question
│   ├── HitlTaskPending          a question waits, and the policy was REJECT
│   ├── RunNotRetryable
│   ├── EncoderMismatch
│   └── ModelRefused
├── Unauthenticated
│   └── TokenInvalid
├── PermissionDenied
│   └── NotAllowed
├── ResourceExhausted
│   ├── TooLarge                 metadata["limit"] and metadata["actual"]
│   ├── Overloaded               retry_after says when to retry
│   ├── ModelRateLimited         retry_after says when to retry
│   └── WatcherTooSlow           watch again from metadata["last_sequence"]
├── DeadlineExceeded             the call's own timeout
│   └── TimeLimit                a limit of the service's own
├── Unavailable                  with an empty reason: the service itself could not be reached
│   ├── DatabaseUnavailable
│   ├── EventLogUnavailable
│   ├── StorageUnavailable
│   ├── ModelUnavailable
│   ├── KnowledgeUnavailable
│   ├── ShuttingDown
│   └── HolderLost
├── NotImplementedByService      in the API, and not in the version that answered
├── Internal
│   ├── ModelMalformed
│   └── AgentStepLimit
└── DataLoss
    └── RecordUnreadable

A reason that this version does not know raises the class of its status code, so that a newer service
breaks no older client: catch the narrowest class that you act on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc


@dataclass(frozen=True)
class FieldViolation:
    """A field of the request that may not hold what it holds; `description` says what it may."""

    field: str
    description: str


class AskbackError(Exception):
    """A call that failed.

    `reason` is a name of `askback.errors.v1.ErrorReason` without its prefix, and empty where the failure
    did not come from the service itself. `retry_after` is in seconds. Switch on the class or the reason;
    `message` is for people and may change.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
    ) -> None:
        # All of it goes to args, so that the error survives pickling.
        super().__init__(code, reason, message, dict(metadata or {}), tuple(field_violations), retry_after)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})
        self.field_violations: tuple[FieldViolation, ...] = tuple(field_violations)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.reason or self.code.name}: {self.message}"


class Cancelled(AskbackError):
    """The server, or someone between, gave the call up."""


class InvalidArgument(AskbackError):
    """The request itself is wrong; sending it again does not help."""


class InvalidField(InvalidArgument):
    """One or more fields hold what they may not; see `field_violations`."""


class InvalidPageToken(InvalidArgument):
    """The page token is none of the service's, or belongs to another query."""


class RequestIdReused(InvalidArgument):
    """The request_id was used before with another request."""


class DocumentUnreadable(InvalidArgument):
    """The document cannot be read as what its name says."""


class NotFound(AskbackError):
    """It does not exist, or it is another user's."""


class SessionNotFound(NotFound):
    """There is no such session of this user."""


class RunNotFound(NotFound):
    """There is no such run of this user, or its session was deleted."""


class HitlTaskNotFound(NotFound):
    """There is no such question to this user."""


class DocumentNotFound(NotFound):
    """The collection holds no document of that name."""


class MessageNotFound(NotFound):
    """The session holds no message of that id."""


class CollectionNotFound(NotFound):
    """There is no collection of that name."""


class AlreadyExists(AskbackError):
    """What was to be made is there already."""


class MessageIdExists(AlreadyExists):
    """The session holds a message of that id already."""


class Aborted(AskbackError):
    """Something else happened at the same time."""


class RevisionMismatch(Aborted):
    """The session is not at `expected_revision`: read it again, then retry."""


class RunInProgress(Aborted):
    """Another run holds the session; `metadata["active_run_id"]` names it."""


class LeaseLost(Aborted):
    """The run is another's by now: stop the work."""


class SessionDeleted(Aborted):
    """The session was deleted while the run was under way."""


class RunReplaced(Aborted):
    """A newer run of the session took this one's place."""


class Contention(Aborted):
    """Too many writers at once: retry."""


class FailedPrecondition(AskbackError):
    """Things are not as the call needs them to be."""


class HitlTaskNotPending(FailedPrecondition):
    """The question is no longer open; `metadata["state"]` says what became of it."""


class HitlTaskPending(FailedPrecondition):
    """A question waits, and the policy was REJECT; `metadata["task_id"]` names it."""


class RunNotRetryable(FailedPrecondition):
    """Only the session's last run, FAILED or CANCELLED, can be retried."""


class EncoderMismatch(FailedPrecondition):
    """The collection was embedded by another encoder than the one configured."""


class ModelRefused(FailedPrecondition):
    """The model's provider refused: key, quota or content."""


class Unauthenticated(AskbackError):
    """Nobody knows who calls."""


class TokenInvalid(Unauthenticated):
    """The token is missing, expired, or not for this service."""


class PermissionDenied(AskbackError):
    """The caller may not do this."""


class NotAllowed(PermissionDenied):
    """The token is for another user, or lacks the scope."""


class ResourceExhausted(AskbackError):
    """Too much, or too often."""


class TooLarge(ResourceExhausted):
    """A whole request, document or session is past its limit."""


class Overloaded(ResourceExhausted):
    """The service has too much to do; retry after `retry_after`."""


class ModelRateLimited(ResourceExhausted):
    """The model's provider limits the service; retry after `retry_after`."""


class WatcherTooSlow(ResourceExhausted):
    """The caller read too slowly; watch again from `metadata["last_sequence"]`."""


class DeadlineExceeded(AskbackError):
    """The call took longer than its timeout; a write may have happened all the same."""


class TimeLimit(DeadlineExceeded):
    """A limit of the service's own was passed."""


class Unavailable(AskbackError):
    """Something cannot be reached for now; with an empty reason, the service itself."""


class DatabaseUnavailable(Unavailable):
    """The service cannot reach its database."""


class EventLogUnavailable(Unavailable):
    """The event log cannot be reached; runs go on without it."""


class StorageUnavailable(Unavailable):
    """The agent cannot reach the storage service."""


class ModelUnavailable(Unavailable):
    """The model's provider does not answer."""


class KnowledgeUnavailable(Unavailable):
    """The knowledge index cannot be reached."""


class ShuttingDown(Unavailable):
    """This replica is shutting down; another one will answer."""


class HolderLost(Unavailable):
    """The replica that ran the run stopped renewing its lease."""


class NotImplementedByService(AskbackError):
    """In the API, and not in the version that answered."""


class Internal(AskbackError):
    """A fault of the service's; its log has it under `metadata["request_id"]`."""


class ModelMalformed(Internal):
    """The model's answer was not of the form asked for, again after a retry."""


class AgentStepLimit(Internal):
    """The agent went round in circles, or past its step limit."""


class DataLoss(AskbackError):
    """Something stored is lost."""


class RecordUnreadable(DataLoss):
    """A stored record cannot be read."""
