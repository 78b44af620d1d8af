"""Who is measured: each subject's name, where its code and its packages are, and what it is."""

from dataclasses import dataclass
from importlib import import_module

from benchmarks.subjects.base import APPEND, NEWEST, WHOLE, OpenSubject

OURS, UNCACHED, BARE, RAW, REWRITE = "askback", "askback-uncached", "bare-handler", "raw-driver", "rewrite"
LANGGRAPH, LANGCHAIN, OPENAI, ADK = "langgraph", "langchain", "openai-agents", "google-adk"
READS = (NEWEST, WHOLE)


@dataclass(frozen=True)
class Entry:
    name: str
    module: str
    """It has `open_subject`."""
    title: str
    operations: tuple[str, ...] = (APPEND, *READS)
    is_peer: bool = False
    """Its packages are in the peers' environment."""


REGISTRY = {
    entry.name: entry
    for entry in (
        Entry(OURS, "over_grpc", "Askback, over gRPC"),
        Entry(UNCACHED, "over_grpc", "Askback without cache", operations=READS),
        Entry(BARE, "over_grpc", "bare gRPC handler"),
        Entry(RAW, "raw_driver", "raw asyncpg, in process"),
        Entry(REWRITE, "rewriting", "delete and rewrite", operations=(APPEND,)),
        Entry(LANGGRAPH, "langgraph_saver", "LangGraph AsyncPostgresSaver", is_peer=True),
        Entry(LANGCHAIN, "langchain_history", "langchain-postgres history", is_peer=True),
        Entry(OPENAI, "openai_session", "OpenAI Agents SQLAlchemySession", is_peer=True),
        Entry(ADK, "adk_sessions", "Google ADK DatabaseSessionService", is_peer=True),
    )
}


def opener(name: str) -> OpenSubject:
    """How the subject is opened; its packages are imported only now."""
    module = import_module(f"benchmarks.subjects.{REGISTRY[name].module}")
    open_subject: OpenSubject = module.open_subject
    return open_subject
