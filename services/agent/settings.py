"""The agent's settings, read once from the environment or a .env file."""

import ipaddress
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from services.runtime.postgres_url import PostgresUrl
from services.runtime.settings import Address, NotInThisVersion, ServiceSettings, setting_name, split_address


def _checked_addresses(given: str) -> str:
    """Holds it to what the client takes."""
    hosts = []
    for address in given.split(","):
        host, port = split_address(address.strip())
        if port == 0:
            raise ValueError("must be host:port, with a port from 1 to 65535")
        hosts.append(host)
    if len(hosts) > 1 and {_ip_version(host) for host in hosts} not in ({4}, {6}):
        raise ValueError(
            "must be one host:port, or several ip:port with commas between, all IPv4 or all IPv6; "
            "for several host names use one DNS name that resolves to all of them"
        )
    return given


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return None


_NO_BASE_URL = "must be http://host/v1 or https://host/v1, as the endpoint's provider names it"


def _checked_base_url(given: str) -> str:
    url = given.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(_NO_BASE_URL) from None
    if not whole or not url.isascii() or any(character.isspace() for character in url):
        raise ValueError(_NO_BASE_URL)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must hold no user or password: a key is set by ASKBACK_OPENAI_API_KEY")
    if parts.query or parts.fragment or url.endswith(("/chat/completions", "/embeddings")):
        raise ValueError("must end before /chat/completions, and without a query")
    return url


def _checked_key(given: SecretStr) -> SecretStr:
    """It goes into a header."""
    key = given.get_secret_value().strip()
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("must be printable ASCII without spaces")
    return SecretStr(key)


ModelName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=256)]


class AgentSettings(ServiceSettings):
    """What an agent process can be told."""

    agent_address: Address = "127.0.0.1:50051"
    """Where the agent listens."""
    storage_address: Annotated[str, AfterValidator(_checked_addresses)] = "127.0.0.1:50052"
    """Where it finds the storage service: `host:port`, or several `ip:port` separated by commas."""
    database_url: PostgresUrl | None = None
    """`postgresql://…`: where the documents' index is kept, unless ASKBACK_KNOWLEDGE_URL names another."""
    knowledge_url: PostgresUrl | None = None
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

    openai_base_url: Annotated[str, AfterValidator(_checked_base_url)] | None = None
    """`http(s)://…/v1`: any endpoint that speaks the OpenAI protocol."""
    openai_api_key: Annotated[SecretStr, AfterValidator(_checked_key)] | None = None
    """Its key; local endpoints often ask for none."""
    model: ModelName | None = None
    """The model that answers; unset: the built-in extractive one, in all three roles."""
    fast_model: ModelName | None = None
    """The model that classes questions and rewrites queries; unset: the one that answers."""
    grade_model: ModelName | None = None
    """The model that grades evidence; unset: the one that answers."""
    classify_timeout_s: float = Field(default=10, gt=0, le=600)
    """Seconds that classing a question may take, all its calls together."""
    grade_timeout_s: float = Field(default=15, gt=0, le=600)
    """Seconds that grading the evidence may take, all its calls together."""
    rewrite_timeout_s: float = Field(default=15, gt=0, le=600)
    """Seconds that rewriting the query may take, all its calls together."""
    first_token_timeout_s: float = Field(default=30, gt=0, le=600)
    """Seconds that the answering model may take to begin, its retries included."""

    embedding_model: NotInThisVersion = None
    """Not in this version: the embedding model; unset: the built-in encoder."""
    rerank_url: NotInThisVersion = None
    """Not in this version: a `/v1/rerank` endpoint."""
    rerank_model: NotInThisVersion = None
    """Not in this version: the model there."""
    rerank_api_key: NotInThisVersion = None
    """Not in this version: its key."""
    rerank_timeout_s: NotInThisVersion = None
    """Not in this version: how long a reranking may take."""
    weather_url: NotInThisVersion = None
    """Not in this version: a weather endpoint."""
    weather_api_key: NotInThisVersion = None
    """Not in this version: its key."""

    @model_validator(mode="after")
    def _endpoint_is_whole(self) -> Self:
        if self.model is not None and self.openai_base_url is None:
            raise ValueError("ASKBACK_OPENAI_BASE_URL: must be set where ASKBACK_MODEL is")
        if self.model is None:
            for name in ("openai_base_url", "openai_api_key", "fast_model", "grade_model"):
                if getattr(self, name) is not None:
                    raise ValueError(f"ASKBACK_MODEL: must be set where {setting_name(name)} is")
        return self

    @property
    def index_url(self) -> str | None:
        """The URL of the documents' database; None where none is set."""
        url = self.knowledge_url or self.database_url
        return url.get_secret_value() if url else None
