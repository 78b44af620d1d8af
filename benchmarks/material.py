"""What is stored: the same conversations for every subject, the same in every run."""

import json
import random
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

TEXT_BYTES = 400
TRACE_BYTES = 6 * 1024
"""Of the trace as compact JSON; as protobuf it is a little less."""
NEWEST = 100

_DISTINCT_TURNS = 97
_CHUNKS = 6
_NAMESPACE = uuid.UUID("5d0f3c1e-7c61-4c39-9a3e-0d6f6a1f5b11")


@dataclass(frozen=True)
class Turn:
    """Two messages: what was asked, and the answer with the record of how it was found."""

    number: int
    human: str
    ai: str
    trace: dict[str, Any]


class Place(NamedTuple):
    """What names a session."""

    user_id: str
    session_id: str


@dataclass(frozen=True)
class SessionSet:
    """Sessions that are alike, filled once; the same name means the same sessions in every process."""

    name: str
    sessions: int
    messages: int
    """In each as it was filled; an even number."""
    one_user: bool = False
    """All of them are one user's; otherwise each has a user of its own."""
    traces: bool = True

    def place(self, session: int) -> Place:
        user_id = self.name if self.one_user else f"{self.name}-{session}"
        return Place(user_id, str(uuid.uuid5(_NAMESPACE, f"{self.name}/{session}")))

    def places(self) -> list[Place]:
        return [self.place(session) for session in range(self.sessions)]

    def turns(self, session: int) -> list[Turn]:
        return [turn(session + number) for number in range(self.messages // 2)]


def turn(number: int) -> Turn:
    """One of a fixed stock of turns; numbers beyond it begin anew."""
    return _turns()[number % _DISTINCT_TURNS]


def stock() -> tuple[Turn, ...]:
    """Every turn that there is, for a subject that makes its own form of each once."""
    return _turns()


@cache
def _turns() -> tuple[Turn, ...]:
    source = random.Random(20_240_131)
    words = ["".join(source.choices("abcdefghiklmnoprstuvw", k=source.randint(2, 9))) for _ in range(3_000)]
    return tuple(
        Turn(number, _text(source, words, TEXT_BYTES), _text(source, words, TEXT_BYTES), _trace(source, words))
        for number in range(_DISTINCT_TURNS)
    )


def _text(source: random.Random, words: list[str], size: int) -> str:
    return " ".join(source.choices(words, k=size // 2))[:size]


def _trace(source: random.Random, words: list[str]) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "tool_name": "search_knowledge_base",
        "query": _text(source, words, 80),
        "retrieval_stage": "RETRIEVAL_STAGE_INITIAL",
        "retrieval": {"mode": "hybrid", "candidate_k": 24, "top_k": 8, "recall_count": 24},
        "evidence": {"route": "ROUTE_ANSWER", "relevance": "RELEVANCE_STRONG", "confidence": 0.9},
        "retrieved_chunks": [
            {
                "filename": f"{source.choice(words)}.md",
                "page_number": str(source.randint(1, 400)),
                "score": round(source.random(), 4),
                "rrf_rank": rank,
                "chunk_id": source.randbytes(8).hex(),
                "text": "",
            }
            for rank in range(1, _CHUNKS + 1)
        ],
    }
    left = TRACE_BYTES - len(json.dumps(trace, separators=(",", ":")))
    for chunk in trace["retrieved_chunks"]:
        chunk["text"] = _text(source, words, left // _CHUNKS)
    return trace
