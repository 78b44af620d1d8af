"""One request's state: its steps from any thread, its trace, its budget."""

import asyncio
import threading
from collections import Counter

import pytest
from pydantic import ValidationError

from services.agent.language import language_of
from services.agent.request_context import (
    MAX_WAITING_STEPS,
    AskBack,
    ChatRequestContext,
    RagStep,
    RagStepKind,
)
from services.agent.schemas import HitlKind, HitlResumeState, RagTrace, RetrievalStatus, RetrievedChunk, Route


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def streaming(clock: Clock | None = None) -> ChatRequestContext:
    return ChatRequestContext.for_stream(
        user_id="u1", session_id="s1", question="How long is it?", clock=clock or Clock()
    )


def emit(context: ChatRequestContext, label: str) -> None:
    context.emit_rag_step(RagStepKind.RETRIEVE, icon="🔍", label=label)


async def collected(context: ChatRequestContext) -> list[RagStep]:
    return [step async for step in context.steps()]


async def test_a_step_knows_its_time_since_the_request_and_since_the_step_before() -> None:
    clock = Clock()
    context = streaming(clock)
    clock.now += 0.25
    emit(context, "first")
    clock.now += 1.5
    emit(context, "second")
    first, second = context.drain_steps()
    assert (first.elapsed_ms, first.stage_elapsed_ms) == (250, 250)
    assert (second.elapsed_ms, second.stage_elapsed_ms) == (1750, 1500)
    assert context.elapsed_ms() == 1750


async def test_steps_of_many_threads_all_arrive_each_threads_in_its_order() -> None:
    context = streaming()
    threads, each = 8, 2 * MAX_WAITING_STEPS // 8

    def work(name: int) -> None:
        for number in range(each):
            emit(context, f"{name}:{number}")

    reading = asyncio.create_task(collected(context))
    await asyncio.gather(*(asyncio.to_thread(work, name) for name in range(threads)))
    context.close()
    steps = await reading
    assert Counter(step.label.split(":")[0] for step in steps) == {str(name): each for name in range(threads)}
    for name in range(threads):
        numbers = [int(step.label.split(":")[1]) for step in steps if step.label.startswith(f"{name}:")]
        assert numbers == list(range(each))
    elapsed = [step.elapsed_ms for step in steps]
    assert elapsed == sorted(elapsed)


async def test_steps_arrive_while_the_request_goes_on() -> None:
    context = streaming()
    waiting = asyncio.create_task(context.next_steps())
    await asyncio.to_thread(emit, context, "first")
    assert [step.label for step in await waiting] == ["first"]
    emit(context, "second")
    emit(context, "third")
    assert [step.label for step in await context.next_steps()] == ["second", "third"]


async def test_steps_told_before_close_are_given_and_later_ones_are_not() -> None:
    context = streaming()
    emit(context, "before")
    context.close()
    context.close()
    emit(context, "after")
    await asyncio.to_thread(emit, context, "after, from a thread")
    assert [step.label for step in await collected(context)] == ["before"]
    assert not context.live


async def test_close_ends_a_reader_that_waits() -> None:
    context = streaming()
    reading = asyncio.create_task(collected(context))
    await asyncio.sleep(0)
    await asyncio.to_thread(context.close)
    assert await asyncio.wait_for(reading, 5) == []


async def test_a_thread_that_outruns_the_reader_is_held_back_and_let_go_by_close() -> None:
    context = streaming()
    full = threading.Event()

    def flood() -> None:
        for number in range(MAX_WAITING_STEPS):
            emit(context, str(number))
        full.set()
        emit(context, "one too many")

    flooding = asyncio.create_task(asyncio.to_thread(flood))
    assert await asyncio.to_thread(full.wait, 5)
    context.close()
    await asyncio.wait_for(flooding, 5)
    assert len(context.drain_steps()) == MAX_WAITING_STEPS


async def test_the_loops_own_thread_is_never_held_back() -> None:
    context = streaming()
    for number in range(MAX_WAITING_STEPS + 1):
        emit(context, str(number))
    assert len(context.drain_steps()) == MAX_WAITING_STEPS + 1


def test_a_loop_that_is_closed_is_never_touched() -> None:
    loop = asyncio.new_event_loop()

    async def make() -> ChatRequestContext:
        return streaming()

    context = loop.run_until_complete(make())
    loop.close()
    emit(context, "too late")
    assert context.drain_steps() == []
    context.close()
    emit(context, "later still")


async def test_a_unary_call_tells_no_steps() -> None:
    context = ChatRequestContext.for_sync(user_id="u1", session_id="s1", question="How long?")
    emit(context, "unheard")
    assert await collected(context) == []
    assert context.live


async def test_a_trace_is_stored_clean_and_taken_once() -> None:
    context = streaming()
    context.store_rag_trace(
        {"query": "q", "unknown": 1, "retrieved_chunks": [{"filename": "", "text": "x"}, {"filename": "a.md"}]}
    )
    expected = RagTrace(query="q", retrieved_chunks=[RetrievedChunk(filename="a.md")])
    assert context.peek_rag_trace() == expected
    assert context.take_rag_trace() == expected
    assert context.take_rag_trace() is None and context.peek_rag_trace() is None


def ask_back(rewrite_count: int = 0) -> AskBack:
    state = HitlResumeState.model_construct(
        question="q",
        route=Route.CLARIFY,
        retrieval_status=RetrievalStatus.NEEDS_CLARIFICATION,
        rewrite_count=rewrite_count,
        sub_questions=[],
    )
    return AskBack(kind=HitlKind.CLARIFY, prompt="Which?", options=[], resume_state=state, original_question="q")


async def test_what_to_ask_back_is_kept_with_the_trace_and_goes_with_the_next_one() -> None:
    context = streaming()
    context.store_rag_trace(RagTrace(query="q"), ask_back=ask_back())
    assert context.take_rag_trace() is not None
    assert context.ask_back is not None and context.ask_back.prompt == "Which?"
    context.store_rag_trace(RagTrace(query="q"))
    assert context.ask_back is None


async def test_a_resume_state_out_of_form_is_refused_and_nothing_is_stored() -> None:
    context = streaming()
    with pytest.raises(ValidationError):
        context.store_rag_trace(RagTrace(query="q"), ask_back=ask_back(rewrite_count=-1))
    assert context.peek_rag_trace() is None and context.ask_back is None


async def test_one_knowledge_search_a_turn_whoever_asks_at_once() -> None:
    context = streaming()
    granted = await asyncio.gather(*(asyncio.to_thread(context.acquire_knowledge_tool_slot) for _ in range(16)))
    assert sum(granted) == 1
    context.reset_knowledge_tool_budget()
    assert context.acquire_knowledge_tool_slot()
    assert not context.acquire_knowledge_tool_slot()


async def test_two_contexts_share_nothing() -> None:
    one, other = streaming(), streaming()
    emit(one, "of one")
    one.store_rag_trace(RagTrace(query="one"))
    assert one.acquire_knowledge_tool_slot() and other.acquire_knowledge_tool_slot()
    one.close()
    assert other.live and other.peek_rag_trace() is None and other.drain_steps() == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How long is it?", "en"),
        ("它多久采样一次？", "zh"),
        ("Alder 的采样间隔是多少？", "zh"),
        ("Canopy API 怎么 export 数据？", "zh"),
        ("What does 校准 mean in the manual?", "en"),
        ("", "en"),
        ("42", "en"),
    ],
)
def test_the_language_is_that_of_most_words(text: str, language: str) -> None:
    assert language_of(text) == language
