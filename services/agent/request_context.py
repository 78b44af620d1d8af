"""What one request shares between the runner, the knowledge tool and the pipeline; two requests share nothing."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from services.agent.knowledge.naming import DEFAULT_COLLECTION
from services.agent.language import Language, language_of
from services.agent.schemas import HitlKind, HitlResumeState, RagTrace, normalize_rag_trace
from services.agent.usage import Usage

MAX_WAITING_STEPS = 4096
KNOWLEDGE_SEARCHES_PER_TURN = 1

# How often a thread that is held back looks whether the loop that reads its steps has gone.
_HELD_BACK_CHECK_S = 0.5


class RagStepKind(StrEnum):
    RECEIVED = "received"
    CLASSIFY = "classify"
    SUB_QUESTION = "sub_question"
    RETRIEVE = "retrieve"
    AUTO_MERGE = "auto_merge"
    RERANK = "rerank"
    GRADE = "grade"
    REWRITE = "rewrite"
    SYNTHESIZE = "synthesize"
    ASK_BACK = "ask_back"
    RESUME = "resume"
    NO_KNOWLEDGE = "no_knowledge"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class RagStep:
    """One line of progress; `group` is empty for the main question and "1" to "4" for a sub-question."""

    kind: RagStepKind
    icon: str
    label: str
    detail: str
    elapsed_ms: int
    """Since the request began."""
    stage_elapsed_ms: int
    """Since the step before."""
    group: str = ""
    group_label: str = ""


@dataclass(frozen=True, slots=True)
class AskBack:
    """A question to put to the user, and what is needed to go on with their answer."""

    kind: HitlKind
    prompt: str
    options: list[str]
    resume_state: HitlResumeState
    original_question: str
    """The user's first words; the same over several rounds."""
    answers: list[str] = field(default_factory=list)
    """What the user answered in the rounds before this one, oldest first."""


class ChatRequestContext:
    """One request's state, safe to use from any thread; its steps are read by one consumer on its loop.

    It is passed explicitly to whatever works for the request, and closed when the request ends.
    """

    def __init__(
        self,
        *,
        user_id: str,
        session_id: str,
        question: str,
        collection: str = DEFAULT_COLLECTION,
        language: Language | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.user_id = user_id
        self.session_id = session_id
        self.question = question
        self.collection = collection
        self.language: Language = language or language_of(question)
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._live = True
        self._loop = loop
        self._steps: deque[RagStep] = deque()
        self._waiting = asyncio.Event()
        self._clock = clock
        self._began = clock()
        self._last_step = self._began
        self._trace: RagTrace | None = None
        self._ask_back: AskBack | None = None
        self._knowledge_searches = 0
        self._usage = Usage()

    @classmethod
    def for_sync(
        cls,
        *,
        user_id: str,
        session_id: str,
        question: str,
        collection: str = DEFAULT_COLLECTION,
        language: Language | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> "ChatRequestContext":
        """A context of a unary call: its steps go nowhere."""
        return cls(
            user_id=user_id,
            session_id=session_id,
            question=question,
            collection=collection,
            language=language,
            loop=None,
            clock=clock,
        )

    @classmethod
    def for_stream(
        cls,
        *,
        user_id: str,
        session_id: str,
        question: str,
        collection: str = DEFAULT_COLLECTION,
        language: Language | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> "ChatRequestContext":
        """A context of a stream, bound to the running loop, on which its steps are read."""
        return cls(
            user_id=user_id,
            session_id=session_id,
            question=question,
            collection=collection,
            language=language,
            loop=asyncio.get_running_loop(),
            clock=clock,
        )

    @property
    def live(self) -> bool:
        with self._lock:
            return self._live

    def elapsed_ms(self) -> int:
        """Milliseconds since the request began."""
        return _milliseconds(self._clock() - self._began)

    def emit_rag_step(
        self,
        kind: RagStepKind,
        *,
        icon: str,
        label: str,
        detail: str = "",
        group: str = "",
        group_label: str = "",
    ) -> None:
        """Tells a step, from any thread; nothing happens once the context is closed, or on a unary call.

        A worker thread waits while MAX_WAITING_STEPS are unread. A thread that runs an event loop never waits:
        whoever emits there would hold up the reader, or the others on that loop.
        """
        may_wait = not _runs_a_loop()
        with self._lock:
            while may_wait and len(self._steps) >= MAX_WAITING_STEPS and self._can_tell():
                self._room.wait(_HELD_BACK_CHECK_S)
            if not self._can_tell():
                return
            now = self._clock()
            step = RagStep(
                kind=kind,
                icon=icon,
                label=label,
                detail=detail,
                elapsed_ms=_milliseconds(now - self._began),
                stage_elapsed_ms=_milliseconds(now - self._last_step),
                group=group,
                group_label=group_label,
            )
            self._last_step = now
            self._steps.append(step)
            # One wake-up serves all that gather until the reader takes them.
            if len(self._steps) == 1:
                self._wake_reader()

    async def next_steps(self) -> list[RagStep]:
        """The steps that wait, in order of emission, once there are any; empty when there will be no more."""
        while True:
            self._waiting.clear()
            # Looked at before the steps: one told just before a close must not be missed.
            with self._lock:
                more_may_come = self._can_tell()
            if steps := self.drain_steps():
                return steps
            if not more_may_come:
                return []
            await self._waiting.wait()

    def drain_steps(self) -> list[RagStep]:
        """The steps that wait, without waiting for one; only on the context's loop, or after close."""
        with self._lock:
            steps = list(self._steps)
            self._steps.clear()
            self._room.notify_all()
        return steps

    async def steps(self) -> AsyncIterator[RagStep]:
        """All steps to the end: those told before close are still given, then it ends."""
        while steps := await self.next_steps():
            for step in steps:
                yield step

    def store_rag_trace(self, trace: RagTrace | Mapping[str, Any], *, ask_back: AskBack | None = None) -> None:
        """Keeps the turn's trace, normalised, and the question that it ended in, if it did.

        Raises pydantic.ValidationError where the trace or the resume state is not of its form.
        """
        normalized = normalize_rag_trace(trace)
        if ask_back is not None:
            state = HitlResumeState.model_validate(ask_back.resume_state.model_dump())
            ask_back = replace(ask_back, resume_state=state)
        with self._lock:
            self._trace = normalized
            self._ask_back = ask_back

    def take_rag_trace(self) -> RagTrace | None:
        """The stored trace, which is then no longer here; what to ask back stays."""
        with self._lock:
            trace, self._trace = self._trace, None
        return trace

    def peek_rag_trace(self) -> RagTrace | None:
        with self._lock:
            return self._trace

    @property
    def ask_back(self) -> AskBack | None:
        """What to ask the user, where the last stored trace ended in that."""
        with self._lock:
            return self._ask_back

    @property
    def usage(self) -> Usage:
        """What the pipeline's models have used so far."""
        with self._lock:
            return self._usage

    def add_usage(self, usage: Usage) -> None:
        with self._lock:
            self._usage += usage

    def reset_knowledge_tool_budget(self) -> None:
        with self._lock:
            self._knowledge_searches = 0

    def acquire_knowledge_tool_slot(self) -> bool:
        """Whether another knowledge search may run in this turn; if so, it counts as run."""
        with self._lock:
            if self._knowledge_searches >= KNOWLEDGE_SEARCHES_PER_TURN:
                return False
            self._knowledge_searches += 1
        return True

    def close(self) -> None:
        """Ends the context, from any thread and as often as one likes: what is emitted from now on is dropped."""
        with self._lock:
            if not self._live:
                return
            self._live = False
            self._wake_reader()
            self._loop = None
            self._room.notify_all()

    def _can_tell(self) -> bool:
        return self._live and self._loop is not None and not self._loop.is_closed()

    def _wake_reader(self) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._waiting.set)
        except RuntimeError:
            # The loop was closed between the look at it and the call: nobody is left to read.
            self._steps.clear()


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


__all__ = [
    "DEFAULT_COLLECTION",
    "KNOWLEDGE_SEARCHES_PER_TURN",
    "MAX_WAITING_STEPS",
    "AskBack",
    "ChatRequestContext",
    "RagStep",
    "RagStepKind",
]
