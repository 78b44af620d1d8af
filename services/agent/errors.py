"""What a turn of the agent, or a call about its documents, can end with."""

from services.runtime.errors import Kind, ServiceError


class DocumentUnreadable(ServiceError):
    """The document cannot be read as what its name says."""

    kind = Kind.INVALID_ARGUMENT
    reason = "DOCUMENT_UNREADABLE"

    def __init__(self, filename: str, why: str):
        super().__init__(f"the document cannot be read: {why}", metadata={"filename": filename})


class DocumentNotFound(ServiceError):
    kind = Kind.NOT_FOUND
    reason = "DOCUMENT_NOT_FOUND"

    def __init__(self, *, collection: str, filename: str):
        super().__init__("no such document", metadata={"collection": collection, "filename": filename})


class CollectionNotFound(ServiceError):
    kind = Kind.NOT_FOUND
    reason = "COLLECTION_NOT_FOUND"

    def __init__(self, collection: str):
        super().__init__("no such collection", metadata={"collection": collection})


class EncoderMismatch(ServiceError):
    """The collection was embedded by another encoder; its documents must be ingested anew for this one."""

    kind = Kind.FAILED_PRECONDITION
    reason = "ENCODER_MISMATCH"

    def __init__(self, *, collection: str, encoder: str, configured_encoder: str):
        super().__init__(
            "the collection was embedded by another encoder",
            metadata={"collection": collection, "encoder": encoder, "configured_encoder": configured_encoder},
        )


class KnowledgeUnavailable(ServiceError):
    kind = Kind.UNAVAILABLE
    reason = "KNOWLEDGE_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("the knowledge index cannot be reached")


class StorageUnavailable(ServiceError):
    kind = Kind.UNAVAILABLE
    reason = "STORAGE_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("the storage service cannot be reached")


class StorageRefused(ServiceError):
    """Storage said no, in its own words: the caller is told the same kind, reason and metadata."""

    def __init__(
        self, text: str, *, kind: Kind, reason: str, metadata: dict[str, str], retry_after_s: float | None
    ) -> None:
        super().__init__(text, metadata=metadata, retry_after_s=retry_after_s)
        self.kind = kind
        self.reason = reason


class LeaseLost(ServiceError):
    """The turn's session is another run's by now; what this one still had to store is refused."""

    kind = Kind.ABORTED
    reason = "LEASE_LOST"

    def __init__(self, run_id: str) -> None:
        super().__init__("the run's lease is another's by now", metadata={"run_id": run_id})


class SessionDeleted(ServiceError):
    kind = Kind.ABORTED
    reason = "SESSION_DELETED"

    def __init__(self, session_id: str) -> None:
        super().__init__("the session was deleted while the run was under way", metadata={"session_id": session_id})


class ModelMalformed(ServiceError):
    """The model's answer was not of the form asked for, again after a retry."""

    kind = Kind.INTERNAL
    reason = "MODEL_MALFORMED"

    def __init__(self) -> None:
        super().__init__("the model's answer was not of the form asked for")


class ModelRateLimited(ServiceError):
    """The model's provider limits us, and did so again after each retry."""

    kind = Kind.RESOURCE_EXHAUSTED
    reason = "MODEL_RATE_LIMITED"

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__("the model's provider limits the rate of calls", retry_after_s=retry_after_s)


class ModelUnavailable(ServiceError):
    """The model's provider cannot be reached, breaks off, or fails."""

    kind = Kind.UNAVAILABLE
    reason = "MODEL_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("the model's provider does not answer")


class ModelRefused(ServiceError):
    """`provider_status` is an HTTP status, or what stands in its place: "content_filter" or "refusal"."""

    kind = Kind.FAILED_PRECONDITION
    reason = "MODEL_REFUSED"

    def __init__(self, provider_status: str) -> None:
        super().__init__("the model's provider refused the call", metadata={"provider_status": provider_status})
        self.provider_status = provider_status


class AgentStepLimit(ServiceError):
    kind = Kind.INTERNAL
    reason = "AGENT_STEP_LIMIT"

    def __init__(self) -> None:
        super().__init__("the agent passed its step limit")
