"""The agent's settings, read once from the environment or a .env file."""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field

from services.runtime.postgres_url import PostgresUrl
from services.runtime.settings import Address, NotInThisVersion, ServiceSettings, split_address


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

    openai_base_url: NotInThisVersion = None
    """Not in this version: an OpenAI-compatible endpoint."""
    openai_api_key: NotInThisVersion = None
    """Not in this version: its key."""
    model: NotInThisVersion = None
    """Not in this version: the answering model; unset: the built-in extractive one."""
    fast_model: NotInThisVersion = None
    """Not in this version: the model that classes and rewrites."""
    grade_model: NotInThisVersion = None
    """Not in this version: the model that grades evidence."""
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

    @property
    def index_url(self) -> str | None:
        """The URL of the documents' database; None where none is set."""
        url = self.knowledge_url or self.database_url
        return url.get_secret_value() if url else None
