"""The stages of the pipeline; each is timed, and tells what it does as it does it."""

from dataclasses import replace

from services.agent.errors import CollectionNotFound, KnowledgeUnavailable
from services.agent.knowledge.base import KnowledgeSearch, Retrieval, RetrievalStageName
from services.agent.models.base import GradedEvidence, GradeModel, QuestionModel
from services.agent.rag import wording
from services.agent.rag.decision import MAX_REWRITES, decide
from services.agent.rag.outcome import RagOutcome
from services.agent.rag.question_back import question_back
from services.agent.rag.single_question import plainly_single
from services.agent.rag.state import Finding, RagState
from services.agent.rag.synthesis import synthesize
from services.agent.rag.trace import answerable_chunks, sub_trace_of, trace_of
from services.agent.rag.wording import Line
from services.agent.request_context import AskBack, ChatRequestContext
from services.agent.schemas import (
    Ambiguity,
    Answerability,
    Complexity,
    ComplexityPlan,
    EvidenceGrade,
    HitlTrace,
    QueryRewrite,
    Relevance,
    RetrievalStage,
    RetrievalStats,
    RetrievedChunk,
    Route,
    StageTiming,
)
from services.agent.texts import clean
from services.runtime.errors import Kind, ServiceError

_RETRIEVING = {
    RetrievalStage.REWRITTEN: Line.RETRIEVING_REWRITTEN,
    RetrievalStage.HITL_TARGETED: Line.RETRIEVING_TARGETED,
}


class RagNodes:
    """One method a stage, from a state to what it adds.

    It holds the ports and nothing of any request: the same nodes serve all requests at once.
    """

    def __init__(self, *, search: KnowledgeSearch, question_model: QuestionModel, grade_model: GradeModel) -> None:
        self._search = search
        self._question_model = question_model
        self._grade_model = grade_model

    async def classify(self, state: RagState, context: ChatRequestContext) -> RagState:
        """Classes the question; where the model's word cannot be read, it is taken as a single one."""
        question = state["question"]
        began = context.elapsed_ms()
        if plainly_single(question):
            plan = ComplexityPlan(complexity=Complexity.SIMPLE, reason=wording.single_by_rule(context.language))
        else:
            wording.tell(context, Line.CLASSIFYING)
            try:
                plan = _sound(await self._question_model.plan(question, on_usage=context.add_usage))
            except ServiceError as error:
                if error.kind is not Kind.INTERNAL:
                    raise
                plan = ComplexityPlan(
                    complexity=Complexity.SIMPLE, reason=wording.not_classed(context.language, error.reason)
                )
        parts = len(plan.sub_questions)
        if parts:
            wording.tell(context, Line.CLASSIFIED_COMPLEX, detail=wording.count_of_parts(context.language, parts))
            plan = plan.model_copy(update={"sub_agent_count": parts})
        else:
            wording.tell(context, Line.CLASSIFIED_SIMPLE)
        return {
            "plan": plan,
            "stage": RetrievalStage.INITIAL,
            "rewrite_count": 0,
            "timings": [_timing(context, "classify", began)],
        }

    async def retrieve(self, state: RagState, context: ChatRequestContext) -> RagState:
        """Searches for the question as it stands; a search that failed altogether ends the run."""
        update = await self._retrieval(state, context)
        if update["retrieval"].stats.mode == "failed":
            # The turn fails, and tells what was tried.
            context.store_rag_trace(trace_of({**state, **update}, collection=context.collection))
            raise KnowledgeUnavailable
        return update

    async def grade(self, state: RagState, context: ChatRequestContext) -> RagState:
        """Has the evidence judged, and decides by it; there is nothing to judge where nothing was found."""
        chunks = state["chunks"]
        began = context.elapsed_ms()
        if chunks:
            _tell(context, state, Line.GRADING, wording.passages(context.language, len(chunks)))
            graded = _clean(await self._grade_model.grade(state["question"], chunks=chunks, on_usage=context.add_usage))
        else:
            graded = _nothing_found(context)
        decision = decide(
            graded.grade,
            rewrite_count=state.get("rewrite_count", 0),
            in_sub_agent=bool(state.get("group")),
            found=bool(chunks),
        )
        _tell(context, state, Line.GRADED, wording.verdict(context.language, graded.grade, decision.status))
        return {
            "graded": graded,
            "decision": decision,
            "timings": [*state["timings"], _timing(context, "grade", began)],
        }

    async def rewrite(self, state: RagState, context: ChatRequestContext) -> RagState:
        """Spends the one rewrite; where no better query comes of it, decides as after one."""
        graded = state["graded"]
        began = context.elapsed_ms()
        wording.tell(context, Line.REWRITING)
        rewrite = await self._better_query(state, context)
        rewrite_count = state["rewrite_count"] + 1
        update: RagState = {
            "rewrite": rewrite,
            "rewrite_count": rewrite_count,
            "timings": [*state["timings"], _timing(context, "rewrite", began)],
        }
        if rewrite is None:
            wording.tell(context, Line.REWRITE_GIVEN_UP)
            update["decision"] = decide(graded.grade, rewrite_count=MAX_REWRITES, in_sub_agent=False, found=True)
        else:
            wording.tell(context, Line.REWRITTEN, detail=rewrite.rewritten_query)
            update["stage"] = RetrievalStage.REWRITTEN
        return update

    async def sub_agent(self, state: RagState, context: ChatRequestContext) -> RagState:
        """Takes one sub-question from retrieval to a decision; a failed search is a finding too."""
        _tell(context, state, Line.SUB_QUESTION, state["question"])
        state = {**state, **await self._retrieval(state, context)}
        hitl = None
        if state["retrieval"].stats.mode != "failed":
            state = {**state, **await self.grade(state, context)}
            graded = state["graded"]
            if state["decision"].route in (Route.CLARIFY, Route.SCOPE_SELECT):
                hitl = HitlTrace(missing_slots=graded.missing_slots, prompt=graded.prompt, options=graded.options)
        finding = Finding(
            place=int(state["group"]) - 1,
            question=state["question"],
            chunks=answerable_chunks(state),
            graded=state.get("graded"),
            decision=state.get("decision"),
            trace=sub_trace_of(state, collection=context.collection, hitl=hitl),
        )
        return {"findings": [finding]}

    async def synthesize(self, state: RagState, context: ChatRequestContext) -> RagState:
        """Joins the findings, in the order planned whatever order they came in."""
        began = context.elapsed_ms()
        findings = sorted(state["findings"], key=lambda finding: finding.place)
        update: RagState = {"sub_traces": [finding.trace for finding in findings], "stage": RetrievalStage.SYNTHESIS}
        joined = synthesize(findings, language=context.language)
        if joined is None:
            context.store_rag_trace(trace_of({**state, **update}, collection=context.collection))
            raise KnowledgeUnavailable
        wording.tell(context, Line.SYNTHESIZED, detail=joined.graded.grade.reason)
        return {
            **update,
            "plan": state["plan"].model_copy(update={"synthesis_merged_count": len(joined.chunks)}),
            "chunks": joined.chunks,
            "graded": joined.graded,
            "decision": joined.decision,
            "uncovered": joined.uncovered,
            "timings": [*state["timings"], _timing(context, "synthesize", began)],
        }

    async def answer(self, state: RagState, context: ChatRequestContext) -> RagState:
        return {"outcome": _outcome(state, context, hitl=state.get("resumed"))}

    async def nothing_known(self, state: RagState, context: ChatRequestContext) -> RagState:
        wording.tell(context, Line.NO_KNOWLEDGE)
        return {"outcome": _outcome(state, context, hitl=state.get("resumed"))}

    async def ask_back(self, state: RagState, context: ChatRequestContext) -> RagState:
        """Puts the evidence out of the answer's reach, and keeps what it takes to go on."""
        ask_back = question_back(state, context)
        wording.tell(context, Line.ASK_BACK, detail=ask_back.prompt)
        hitl = state.get("resumed", HitlTrace()).model_copy(
            update={
                "missing_slots": state["graded"].missing_slots,
                "prompt": ask_back.prompt,
                "options": ask_back.options,
            }
        )
        return {"outcome": _outcome(state, context, hitl=hitl, ask_back=ask_back)}

    async def _retrieval(self, state: RagState, context: ChatRequestContext) -> RagState:
        stage = state["stage"]
        query = _query(state)
        began = context.elapsed_ms()
        _tell(context, state, _RETRIEVING.get(stage, Line.RETRIEVING), query)

        def on_stage(name: RetrievalStageName) -> None:
            if name == "auto_merge":
                _tell(context, state, Line.MERGING)
            elif name == "rerank":
                _tell(context, state, Line.RERANKING)

        try:
            retrieval = await self._search.retrieve(query, collection=context.collection, on_stage=on_stage)
        except CollectionNotFound as error:
            # Deleted since the question was asked: were that an error, no answer would ever be taken.
            if "resumed" not in state:
                raise
            retrieval = Retrieval([], RetrievalStats(recall_count=0, empty=True, error=error.reason))
        # What has no filename cannot be cited, and would be dropped from the trace: citations would shift.
        chunks = [chunk for chunk in retrieval.chunks if chunk.filename.strip()]
        timings = [timing.model_copy(update={"start_ms": began + timing.start_ms}) for timing in retrieval.timings] or [
            _timing(context, "retrieve", began)
        ]
        if retrieval.stats.mode == "failed":
            _tell(context, state, Line.RETRIEVAL_FAILED)
        else:
            _tell(context, state, Line.RETRIEVED, _counts(context, retrieval, chunks))
        return {
            "retrieval": retrieval,
            "chunks": chunks,
            "evidence": {**state.get("evidence", {}), stage: chunks},
            "timings": [*state.get("timings", []), *timings],
        }

    async def _better_query(self, state: RagState, context: ChatRequestContext) -> QueryRewrite | None:
        """The rewrite, or None where the model wrote none that is another query."""
        question, graded = state["question"], state["graded"]
        try:
            rewrite = await self._question_model.rewrite(
                question, chunks=state["chunks"], grade=graded.grade, on_usage=context.add_usage
            )
        except ServiceError as error:
            if error.kind is not Kind.INTERNAL:
                raise
            return None
        written = rewrite.rewritten_query.strip().casefold()
        return rewrite if written and written != question.strip().casefold() else None


def _outcome(
    state: RagState, context: ChatRequestContext, *, hitl: HitlTrace | None, ask_back: AskBack | None = None
) -> RagOutcome:
    trace = trace_of(state, collection=context.collection, hitl=hitl)
    return RagOutcome(
        status=state["decision"].status,
        chunks=list(trace.retrieved_chunks),
        trace=trace,
        hitl=ask_back,
        original_question=state["original_question"],
        uncovered=state.get("uncovered", []) if ask_back is None else [],
    )


def _sound(plan: ComplexityPlan) -> ComplexityPlan:
    """A plan whose class and parts agree: several questions are two or more, and different."""
    parts = list(dict.fromkeys(part.strip() for part in plan.sub_questions if part.strip()))
    if plan.complexity is Complexity.COMPLEX and len(parts) > 1:
        return ComplexityPlan(complexity=Complexity.COMPLEX, reason=plan.reason, sub_questions=parts)
    return ComplexityPlan(complexity=Complexity.SIMPLE, reason=plan.reason)


def _clean(graded: GradedEvidence) -> GradedEvidence:
    return replace(
        graded,
        prompt=clean(graded.prompt),
        options=[clean(option) for option in graded.options],
        missing_slots=[clean(slot) for slot in graded.missing_slots],
    )


def _nothing_found(context: ChatRequestContext) -> GradedEvidence:
    grade = EvidenceGrade(
        relevance=Relevance.NONE,
        answerability=Answerability.NONE,
        ambiguity=Ambiguity.NONE,
        reason=wording.nothing_found(context.language),
    )
    return GradedEvidence(grade=grade)


def _query(state: RagState) -> str:
    rewrite = state.get("rewrite")
    return rewrite.rewritten_query if rewrite and state["stage"] is RetrievalStage.REWRITTEN else state["question"]


def _counts(context: ChatRequestContext, retrieval: Retrieval, chunks: list[RetrievedChunk]) -> str:
    merged = retrieval.auto_merge.replaced_chunks if retrieval.auto_merge else None
    return wording.recalled(
        context.language, recall_count=retrieval.stats.recall_count, merged=merged or 0, kept=len(chunks)
    )


def _tell(context: ChatRequestContext, state: RagState, line: Line, detail: str = "") -> None:
    group = state.get("group", "")
    wording.tell(context, line, detail=detail, group=group, group_label=state["question"] if group else "")


def _timing(context: ChatRequestContext, stage: str, began: int) -> StageTiming:
    return StageTiming(stage=stage, start_ms=began, elapsed_ms=context.elapsed_ms() - began)
