"""The agent's settings, read once from the environment or a .env file."""

from typing import Self

from pydantic import Field, SecretStr, model_validator

from services.runtime.settings import Address, ServiceSettings

_LATER = (
    "openai_base_url",
    "model",
    "fast_model",
    "grade_model",
    "embedding_model",
    "rerank_url",
    "weather_url",
)


class AgentSettings(ServiceSettings):
    """What an agent process can be told."""

    agent_address: Address = "127.0.0.1:50051"
    """Where the agent listens."""
    storage_address: str = "127.0.0.1:50052"
    """Where it finds the storage service: `host:port`, several separated by commas."""
    database_url: SecretStr | None = None
    """`postgresql://…`: where the documents' index is kept, unless ASKBACK_KNOWLEDGE_URL names another."""
    knowledge_url: SecretStr | None = None
    """`postgresql://…` of a database with pgvector, for the documents and their index."""
    retrieval_top_k: int = Field(default=8, ge=1, le=50)
    """How many passages an answer may rest on."""
    retrieval_candidate_k: int | None = Field(default=None, ge=1, le=1000)
    """How many leaves are recalled; unset: top_k times the multiplier."""
    retrieval_candidate_multiplier: int = Field(default=3, ge=1, le=20)
    """How many times top_k leaves are recalled where no number is set."""
    auto_merge: bool = True
    """Whether siblings give way to the parent that holds them."""
    auto_merge_threshold: int = Field(default=2, ge=2, le=20)
    """How many siblings it takes."""
    rerank_min_score: float = Field(default=0, ge=0, le=1)
    """The least score that evidence must have; 0 keeps all."""
    run_lease_s: float = Field(default=30, ge=5, le=600)
    """Seconds that a turn's hold on its session lasts without renewal."""
    hitl_expire_s: int = Field(default=604_800, ge=60)
    """Seconds that a question waits for its answer."""
    turn_limit_s: float = Field(default=180, ge=1, le=3600)
    """Seconds that a turn may take in all."""
    context_messages: int = Field(default=6, ge=0, le=100)
    """How many of the newest messages the model sees, cut at turn borders."""

    openai_base_url: str | None = None
    """Not in this version: an OpenAI-compatible endpoint."""
    model: str | None = None
    """Not in this version: the answering model; unset: the built-in extractive one."""
    fast_model: str | None = None
    """Not in this version: the model that classes and rewrites."""
    grade_model: str | None = None
    """Not in this version: the model that grades evidence."""
    embedding_model: str | None = None
    """Not in this version: the embedding model; unset: the built-in encoder."""
    rerank_url: str | None = None
    """Not in this version: a `/v1/rerank` endpoint."""
    weather_url: str | None = None
    """Not in this version: a weather endpoint."""

    @model_validator(mode="after")
    def _refuse_what_would_be_ignored(self) -> Self:
        for name in _LATER:
            if getattr(self, name) is not None:
                raise ValueError(f"ASKBACK_{name.upper()} is not supported by this version: leave it unset")
        return self

    @property
    def index_url(self) -> str | None:
        """The URL of the documents' database; None where none is set."""
        url = self.knowledge_url or self.database_url
        return url.get_secret_value() if url else None
