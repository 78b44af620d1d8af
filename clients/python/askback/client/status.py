"""From the status that a call ended with, and its details, to the error that stands for it."""

from collections.abc import Sequence

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from askback.client.errors import (
    Aborted,
    AgentStepLimit,
    AlreadyExists,
    AskbackError,
    Cancelled,
    CollectionNotFound,
    Contention,
    DatabaseUnavailable,
    DataLoss,
    DeadlineExceeded,
    DocumentNotFound,
    DocumentUnreadable,
    EncoderMismatch,
    EventLogUnavailable,
    FailedPrecondition,
    FieldViolation,
    HitlTaskNotFound,
    HitlTaskNotPending,
    HitlTaskPending,
    HolderLost,
    Internal,
    InvalidArgument,
    InvalidField,
    InvalidPageToken,
    KnowledgeUnavailable,
    LeaseLost,
    MessageIdExists,
    MessageNotFound,
    ModelMalformed,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    NotAllowed,
    NotFound,
    NotImplementedByService,
    Overloaded,
    PermissionDenied,
    RecordUnreadable,
    RequestIdReused,
    ResourceExhausted,
    RevisionMismatch,
    RunInProgress,
    RunNotFound,
    RunNotRetryable,
    RunReplaced,
    SessionDeleted,
    SessionNotFound,
    ShuttingDown,
    StorageUnavailable,
    TimeLimit,
    TokenInvalid,
    TooLarge,
    Unauthenticated,
    Unavailable,
    WatcherTooSlow,
)

_DOMAIN = "askback"
_DETAILS_KEY = "grpc-status-details-bin"

_BY_CODE: dict[grpc.StatusCode, type[AskbackError]] = {
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.UNIMPLEMENTED: NotImplementedByService,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.DATA_LOSS: DataLoss,
}

_BY_REASON: dict[str, type[AskbackError]] = {
    "INVALID_FIELD": InvalidField,
    "INVALID_PAGE_TOKEN": InvalidPageToken,
    "REQUEST_ID_REUSED": RequestIdReused,
    "DOCUMENT_UNREADABLE": DocumentUnreadable,
    "SESSION_NOT_FOUND": SessionNotFound,
    "RUN_NOT_FOUND": RunNotFound,
    "HITL_TASK_NOT_FOUND": HitlTaskNotFound,
    "DOCUMENT_NOT_FOUND": DocumentNotFound,
    "MESSAGE_NOT_FOUND": MessageNotFound,
    "COLLECTION_NOT_FOUND": CollectionNotFound,
    "MESSAGE_ID_EXISTS": MessageIdExists,
    "REVISION_MISMATCH": RevisionMismatch,
    "RUN_IN_PROGRESS": RunInProgress,
    "LEASE_LOST": LeaseLost,
    "SESSION_DELETED": SessionDeleted,
    "RUN_REPLACED": RunReplaced,
    "CONTENTION": Contention,
    "HITL_TASK_NOT_PENDING": HitlTaskNotPending,
    "HITL_TASK_PENDING": HitlTaskPending,
    "RUN_NOT_RETRYABLE": RunNotRetryable,
    "ENCODER_MISMATCH": EncoderMismatch,
    "TOKEN_INVALID": TokenInvalid,
    "NOT_ALLOWED": NotAllowed,
    "TOO_LARGE": TooLarge,
    "OVERLOADED": Overloaded,
    "MODEL_RATE_LIMITED": ModelRateLimited,
    "WATCHER_TOO_SLOW": WatcherTooSlow,
    "TIME_LIMIT": TimeLimit,
    "DATABASE_UNAVAILABLE": DatabaseUnavailable,
    "EVENT_LOG_UNAVAILABLE": EventLogUnavailable,
    "STORAGE_UNAVAILABLE": StorageUnavailable,
    "MODEL_UNAVAILABLE": ModelUnavailable,
    "KNOWLEDGE_UNAVAILABLE": KnowledgeUnavailable,
    "SHUTTING_DOWN": ShuttingDown,
    "HOLDER_LOST": HolderLost,
    "MODEL_REFUSED": ModelRefused,
    "MODEL_MALFORMED": ModelMalformed,
    "AGENT_STEP_LIMIT": AgentStepLimit,
    "RECORD_UNREADABLE": RecordUnreadable,
    "NOT_IMPLEMENTED": NotImplementedByService,
    "INTERNAL": Internal,
}


def error_from_rpc(error: grpc.aio.AioRpcError) -> AskbackError:
    """The typed error that a failed call stands for."""
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    retry_after: float | None = None
    for detail in _details(error):
        # Details that do not parse are as good as none: the status itself still says what happened.
        try:
            if detail.Is(info.DESCRIPTOR):
                detail.Unpack(info)
            elif detail.Is(bad_request.DESCRIPTOR):
                detail.Unpack(bad_request)
            elif detail.Is(retry.DESCRIPTOR) and detail.Unpack(retry):
                retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        except DecodeError:
            continue
    by_code = _BY_CODE.get(error.code(), AskbackError)
    kind = _BY_REASON.get(info.reason, by_code) if info.domain == _DOMAIN else by_code
    return kind(
        error.code(),
        info.reason,
        error.details() or "",
        dict(info.metadata),
        tuple(FieldViolation(violation.field, violation.description) for violation in bad_request.field_violations),
        retry_after,
    )


def _details(error: grpc.aio.AioRpcError) -> Sequence[any_pb2.Any]:
    for key, value in error.trailing_metadata():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:
                return ()
            return tuple(status.details)
    return ()
