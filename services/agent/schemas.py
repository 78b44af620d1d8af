"""The protocols of retrieval and of asking back; on the wire they are askback.rag.v1, field by field.

`None` and an empty string mean absent. Normalisation keeps declared fields alone and drops evidence that
nobody could cite, and characters that no text may hold; it is used before a trace is exchanged and before it is stored.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.agent.texts import clean

MAX_SUB_QUESTIONS = 4


class RetrievalStage(StrEnum):
    INITIAL = "initial"
    REWRITTEN = "rewritten"
    SYNTHESIS = "synthesis"
    HITL_TARGETED = "hitl_targeted"


class Complexity(StrEnum):
    SIMPLE = "simple"
    COMPLEX = "complex"


class CandidateKSource(StrEnum):
    ENV = "env"
    MULTIPLIER = "multiplier"


class Route(StrEnum):
    ANSWER = "answer"
    REWRITE = "rewrite"
    CLARIFY = "clarify"
    SCOPE_SELECT = "scope_select"
    NO_KNOWLEDGE = "no_knowledge"


class RetrievalStatus(StrEnum):
    ANSWERABLE = "answerable"
    PARTIAL = "partial"
    NEEDS_REWRITE = "needs_rewrite"
    NEEDS_CLARIFICATION = "needs_clarification"
    NEEDS_SCOPE_SELECTION = "needs_scope_selection"
    NO_KNOWLEDGE = "no_knowledge"


class Relevance(StrEnum):
    NONE = "none"
    WEAK = "weak"
    STRONG = "strong"


class Answerability(StrEnum):
    NONE = "none"
    PARTIAL = "partial"
    SUFFICIENT = "sufficient"


class Ambiguity(StrEnum):
    NONE = "none"
    MISSING_SLOT = "missing_slot"
    MULTIPLE_CANDIDATES = "multiple_candidates"


class RewriteMethod(StrEnum):
    STEP_BACK = "step_back"
    HYDE = "hyde"


class HitlKind(StrEnum):
    CLARIFY = "clarify"
    SCOPE_SELECT = "scope_select"


class HitlState(StrEnum):
    PENDING = "pending"
    CLAIMED = "claimed"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class StrictSchema(BaseModel):
    """The base of all protocols: a field that is not declared is refused."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class RetrievedChunk(StrictSchema):
    """One piece of evidence."""

    filename: str = ""
    page_number: str = ""
    text: str = ""
    score: float | None = None
    rrf_rank: int | None = None
    rerank_score: float | None = None
    chunk_id: str = ""


class StageTiming(StrictSchema):
    """When a stage ran, in milliseconds since the request began."""

    stage: str
    start_ms: int = 0
    elapsed_ms: int = 0


class ComplexityPlan(StrictSchema):
    complexity: Complexity | None = None
    reason: str = ""
    sub_questions: list[str] = Field(default_factory=list, max_length=MAX_SUB_QUESTIONS)
    sub_agent_count: int | None = None
    synthesis_merged_count: int | None = None


class RetrievalStats(StrictSchema):
    mode: str = ""
    pipeline: str = ""
    candidate_k: int | None = None
    candidate_k_source: CandidateKSource | None = None
    candidate_k_config_error: str = ""
    candidate_multiplier: int | None = None
    top_k: int | None = None
    recall_count: int | None = None
    leaf_level: int | None = None
    empty: bool | None = None
    error: str = ""


class AutoMergeStats(StrictSchema):
    enabled: bool | None = None
    applied: bool | None = None
    threshold: int | None = None
    replaced_chunks: int | None = None
    steps: int | None = None
    post_merge_candidate_count: int | None = None


class RerankStats(StrictSchema):
    enabled: bool | None = None
    applied: bool | None = None
    model: str = ""
    endpoint: str = ""
    error: str = ""
    timeout_seconds: float | None = None
    min_score: float | None = None
    candidate_count: int | None = None
    post_rerank_count: int | None = None
    post_threshold_count: int | None = None


class EvidenceGrade(StrictSchema):
    route: Route | None = None
    status: RetrievalStatus | None = None
    relevance: Relevance | None = None
    answerability: Answerability | None = None
    ambiguity: Ambiguity | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    reason: str = ""


class QueryRewrite(StrictSchema):
    method: RewriteMethod | None = None
    rewritten_query: str = ""
    step_back_question: str = ""
    hyde_document: str = ""


class HitlResumeState(StrictSchema):
    """The least that the pipeline needs to go on after an answer: no documents, no graph state."""

    question: str = Field(min_length=1)
    route: Route
    retrieval_status: RetrievalStatus
    rewrite_count: int = Field(default=0, ge=0)
    complexity: Complexity | None = None
    complexity_reason: str = ""
    sub_questions: list[str] = Field(default_factory=list, max_length=MAX_SUB_QUESTIONS)
    collection: str = ""


class HitlTrace(StrictSchema):
    missing_slots: list[str] = Field(default_factory=list)
    prompt: str = ""
    options: list[str] = Field(default_factory=list)
    resumed: bool | None = None
    answer: str = ""
    resume_strategy: str = ""
    resumed_from: HitlResumeState | None = None


class RagTraceFields(StrictSchema):
    """What a question's trace and a sub-question's share; a stage that did not run leaves its group None."""

    tool_name: str = ""
    query: str = ""
    retrieval_stage: RetrievalStage | None = None
    complexity: ComplexityPlan | None = None
    retrieval: RetrievalStats | None = None
    auto_merge: AutoMergeStats | None = None
    rerank: RerankStats | None = None
    evidence: EvidenceGrade | None = None
    rewrite: QueryRewrite | None = None
    hitl: HitlTrace | None = None
    retrieved_chunks: list[RetrievedChunk] = Field(default_factory=list)
    initial_retrieved_chunks: list[RetrievedChunk] = Field(default_factory=list)
    rewrite_retrieved_chunks: list[RetrievedChunk] = Field(default_factory=list)
    hitl_targeted_retrieved_chunks: list[RetrievedChunk] = Field(default_factory=list)
    collection: str = ""
    timings: list[StageTiming] = Field(default_factory=list)


class RagSubTrace(RagTraceFields):
    """A sub-question's trace; it has no sub-traces itself."""


class RagTrace(RagTraceFields):
    """The record of how one question was answered."""

    sub_traces: list[RagSubTrace] = Field(default_factory=list)


class PendingHitlState(StrictSchema):
    """A question that waits for the user, or that the run under way goes on with."""

    task_id: str
    original_question: str
    prompt: str
    options: list[str] = Field(default_factory=list)
    kind: HitlKind
    state: HitlState
    answers: list[str] = Field(default_factory=list)
    create_time: datetime | None = None
    resume_state: HitlResumeState | None = None


class HitlTask(PendingHitlState):
    """A question put to the user with its whole fate, as stored."""

    user_id: str = ""
    session_id: str = ""
    run_id: str = ""
    retrieval_status: RetrievalStatus | None = None
    expire_time: datetime | None = None
    resolve_time: datetime | None = None
    answer: str = ""
    answered_by_run_id: str = ""


_EVIDENCE_FIELDS = (
    "retrieved_chunks",
    "initial_retrieved_chunks",
    "rewrite_retrieved_chunks",
    "hitl_targeted_retrieved_chunks",
)


def _declared(schema: type[StrictSchema], value: object) -> dict[str, Any]:
    """The declared fields of a mapping or model, nested groups cleaned the same way."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if not isinstance(value, Mapping):
        return {}
    kept: dict[str, Any] = {}
    for name, field in schema.model_fields.items():
        if (given := value.get(name)) is None:
            continue
        group = next((part for part in _parts(field.annotation) if issubclass(part, StrictSchema)), None)
        if group is not None and not isinstance(given, list):
            given = _declared(group, given)
        kept[name] = _clean(given)
    return kept


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value


def _parts(annotation: Any) -> list[type]:
    return [part for part in (annotation, *getattr(annotation, "__args__", ())) if isinstance(part, type)]


def _normalize_chunks(chunks: object) -> list[RetrievedChunk]:
    """Keeps evidence that has a filename and reads as evidence, and its declared fields alone."""
    kept = []
    for chunk in chunks if isinstance(chunks, list | tuple) else ():
        fields = _declared(RetrievedChunk, chunk)
        if isinstance(page := fields.get("page_number"), int):
            fields["page_number"] = str(page)
        try:
            cleaned = RetrievedChunk.model_validate(fields)
        except ValidationError:
            continue
        if cleaned.filename.strip():
            kept.append(cleaned)
    return kept


def _normalize_trace_fields(schema: type[RagTraceFields], trace: object) -> dict[str, Any]:
    fields = _declared(schema, trace)
    for name in _EVIDENCE_FIELDS:
        if name in fields:
            fields[name] = _normalize_chunks(fields[name])
    if isinstance(fields.get("timings"), list | tuple):
        fields["timings"] = [_declared(StageTiming, timing) for timing in fields["timings"]]
    return fields


def normalize_rag_sub_trace(trace: object) -> RagSubTrace:
    """Cleans and validates a sub-question's trace; whatever nests below it is dropped.

    Raises pydantic.ValidationError where a declared field holds what it may not.
    """
    return RagSubTrace.model_validate(_normalize_trace_fields(RagSubTrace, trace))


def normalize_rag_trace(trace: object) -> RagTrace:
    """Cleans and validates a trace and its sub-traces, one level deep.

    Raises pydantic.ValidationError where a declared field holds what it may not.
    """
    fields = _normalize_trace_fields(RagTrace, trace)
    if isinstance(fields.get("sub_traces"), list | tuple):
        fields["sub_traces"] = [normalize_rag_sub_trace(sub_trace) for sub_trace in fields["sub_traces"]]
    return RagTrace.model_validate(fields)


__all__ = [
    "MAX_SUB_QUESTIONS",
    "Ambiguity",
    "Answerability",
    "AutoMergeStats",
    "CandidateKSource",
    "Complexity",
    "ComplexityPlan",
    "EvidenceGrade",
    "HitlKind",
    "HitlResumeState",
    "HitlState",
    "HitlTask",
    "HitlTrace",
    "PendingHitlState",
    "QueryRewrite",
    "RagSubTrace",
    "RagTrace",
    "RagTraceFields",
    "Relevance",
    "RerankStats",
    "RetrievalStage",
    "RetrievalStats",
    "RetrievalStatus",
    "RetrievedChunk",
    "RewriteMethod",
    "Route",
    "StageTiming",
    "StrictSchema",
    "normalize_rag_sub_trace",
    "normalize_rag_trace",
]
