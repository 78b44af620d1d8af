"""Writes down, as a trace, what a state has gathered."""

from typing import Any

from services.agent.rag.state import RagState
from services.agent.schemas import (
    HitlTrace,
    RagSubTrace,
    RagTrace,
    RetrievalStage,
    RetrievedChunk,
    Route,
)


def answerable_chunks(state: RagState) -> list[RetrievedChunk]:
    """The evidence in reach of an answer: none where the pipeline came to something else."""
    decision = state.get("decision")
    return list(state["chunks"]) if decision is not None and decision.route is Route.ANSWER else []


def trace_of(state: RagState, *, collection: str, hitl: HitlTrace | None = None) -> RagTrace:
    return RagTrace(
        **_fields(state, collection=collection, hitl=hitl),
        tool_name=state.get("tool_name", ""),
        complexity=state.get("plan"),
        sub_traces=state.get("sub_traces", []),
    )


def sub_trace_of(state: RagState, *, collection: str, hitl: HitlTrace | None = None) -> RagSubTrace:
    return RagSubTrace(**_fields(state, collection=collection, hitl=hitl))


def _fields(state: RagState, *, collection: str, hitl: HitlTrace | None) -> dict[str, Any]:
    retrieval = state.get("retrieval")
    evidence = state.get("evidence", {})
    graded, decision = state.get("graded"), state.get("decision")
    grade = None
    if graded is not None and decision is not None:
        grade = graded.grade.model_copy(update={"route": decision.route, "status": decision.status})
    return {
        "query": state["question"],
        "retrieval_stage": state.get("stage"),
        "retrieval": retrieval.stats if retrieval else None,
        "auto_merge": retrieval.auto_merge if retrieval else None,
        "rerank": retrieval.rerank if retrieval else None,
        "evidence": grade,
        "rewrite": state.get("rewrite"),
        "hitl": hitl,
        "retrieved_chunks": answerable_chunks(state),
        "initial_retrieved_chunks": evidence.get(RetrievalStage.INITIAL, []),
        "rewrite_retrieved_chunks": evidence.get(RetrievalStage.REWRITTEN, []),
        "hitl_targeted_retrieved_chunks": evidence.get(RetrievalStage.HITL_TARGETED, []),
        "collection": collection,
        "timings": sorted(state.get("timings", []), key=lambda timing: timing.start_ms),
    }
