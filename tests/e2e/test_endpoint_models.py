"""Whole turns with models over HTTP: real servers, and an endpoint that does what a test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from askback.client import AgentClient, AskbackError
from askback.storage.v1 import run_pb2, session_pb2
from services.agent.tools.knowledge import KNOWLEDGE_TOOL_NAME
from services.runtime.server import RunningServer
from tests.e2e.harness import OpenAgent, System, chat, kinds, step_kinds, text_of, trace_of, until_finished
from tests.model_server.replies import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Calls,
    CutsOff,
    Fails,
    Garbage,
    Hangs,
    Refuses,
    Reply,
    Says,
    Writes,
)
from tests.model_server.server import ModelServer, model_server
from tests.model_server.wire import Received

AgentWith = Callable[..., AbstractAsyncContextManager[RunningServer]]

QUESTION = "How many requests per minute does API v3 allow?"
SEVERAL = "How many requests does API v3 allow, and how do I reset the admin PIN of a Cedar recorder?"
OPEN = "How do I reset the admin PIN?"
KEY = "sk-a-secret-key"
OF_THE_GRADER = "the private words of the grader"
PROVIDERS_WORDS = "the provider's own words"
AT_ONCE = {"retry-after": "0"}
GRADE: dict[str, Any] = {
    "relevance": "strong",
    "answerability": "sufficient",
    "ambiguity": "none",
    "route": "answer",
    "confidence": 0.9,
    "reason": OF_THE_GRADER,
    "prompt": "",
    "options": [],
    "missing_slots": [],
}
ASKS: dict[str, Any] = {
    **GRADE,
    "ambiguity": "multiple_candidates",
    "route": "scope_select",
    "prompt": "Which sensor do you mean?",
    "options": ["Alder", "Birch", "Cedar"],
}
PLAN = {"complexity": "simple", "reason": "one thing", "sub_questions": []}
ANSWER = ["600 requests ", "per minute\0 [1]", "。\U0001f469‍\U0001f680"]


def after_a_search(request: Received) -> bool:
    return bool(request.body["messages"][-1]["role"] == "tool")


def playing(**roles: Reply) -> Callable[[Received], Reply]:
    """A model that plays its part well in each role that is not given: it searches, and then answers."""

    def reply(request: Received) -> Reply:
        # Asked for plain JSON, the judge is known by its name alone.
        if role := request.asks_for or ("grade" if request.body["model"] == "judge" else ""):
            return roles.get(role) or Writes({"plan": PLAN, "grade": GRADE}[role])
        if after_a_search(request):
            return roles.get("answer") or Says(ANSWER)
        return roles.get("search") or Calls(KNOWLEDGE_TOOL_NAME, {"query": QUESTION}, fragments=7)

    return reply


@pytest.fixture
async def endpoint() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.fixture
def agent_with(endpoint: ModelServer, open_agent: OpenAgent) -> AgentWith:
    def opened(**settings: object) -> AbstractAsyncContextManager[RunningServer]:
        defaults: dict[str, object] = {
            "openai_base_url": endpoint.base_url,
            "openai_api_key": KEY,
            "model": "large",
            "fast_model": "fast",
            "grade_model": "judge",
        }
        return open_agent(**{**defaults, **settings})

    return opened


async def test_a_turn_searches_grades_answers_and_is_stored_with_its_usage(
    system: System, endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    endpoint.chat.by(playing())
    async with agent_with() as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message=SEVERAL)

    assert text_of(events) == "600 requests per minute [1]。\U0001f469‍\U0001f680"
    assert [event.content.text for event in events if event.HasField("content")] == [
        piece.replace("\0", "") for piece in ANSWER
    ]
    assert {"TOOL", "RETRIEVE", "GRADE"} <= set(step_kinds(events))
    question, answer = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert (question.content, answer.content) == (SEVERAL, text_of(events))
    assert answer.rag_trace == trace_of(events)
    usage = events[-1].finished.usage
    calls = len(endpoint.chat.requests)
    assert (usage.input_tokens, usage.output_tokens, usage.model_calls) == (
        calls * INPUT_TOKENS,
        calls * OUTPUT_TOKENS,
        calls,
    )
    run = await system.storage.get_run(user_id=user, run_id=events[0].run_id)
    assert run.usage == usage
    assert {(request.asks_for, request.body["model"]) for request in endpoint.chat.requests} == {
        ("", "large"),
        ("grade", "judge"),
    }


async def test_a_question_that_may_be_several_is_classed_by_the_fast_model(
    endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    parts = ["How many requests does API v3 allow?", "How do I reset the admin PIN of a Cedar recorder?"]
    search = Calls(KNOWLEDGE_TOOL_NAME, {"query": SEVERAL})
    plan = Writes({"complexity": "complex", "reason": "two things", "sub_questions": parts})
    endpoint.chat.by(playing(search=search, plan=plan))
    async with agent_with() as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message=SEVERAL)
    assert endpoint.chat.asked_for == ["", "plan", "grade", "grade", ""]
    assert [sub_trace.query for sub_trace in trace_of(events).sub_traces] == parts
    assert events[-1].finished.usage.model_calls == 5


async def test_only_the_answering_models_words_are_in_the_answer(
    endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    endpoint.chat.by(playing(search=Calls(KNOWLEDGE_TOOL_NAME, {"query": SEVERAL}, before="Let me see. ")))
    async with agent_with() as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message=SEVERAL)
        unary = await agent.chat(user_id=user, session_id="t", message=SEVERAL)
    assert text_of(events) == unary.response == "".join(ANSWER).replace("\0", "")
    assert trace_of(events).evidence.reason == OF_THE_GRADER


async def test_the_model_is_given_the_evidence_as_quotations(
    endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    endpoint.chat.by(playing())
    async with agent_with() as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message=QUESTION)
    evidence = str(endpoint.chat.requests[-1].body["messages"][-1]["content"])
    assert evidence.startswith("ANSWERABLE\n")
    first = trace_of(events).retrieved_chunks[0]
    assert f"[1] {first.filename}" in evidence
    assert all(f"> {line}".rstrip() in evidence for line in first.text.splitlines())


async def test_a_question_back_is_asked_and_its_answer_gone_on_with(
    system: System, endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    search = Calls(KNOWLEDGE_TOOL_NAME, {"query": OPEN})
    endpoint.chat.by(playing(search=search, grade=Writes(ASKS)))
    async with agent_with() as server, AgentClient(server.address) as agent:
        asked = await chat(agent, user_id=user, session_id="s", message=OPEN)
        task = asked[-2].hitl_request
        assert (task.prompt, list(task.options)) == (ASKS["prompt"], ASKS["options"])
        assert text_of(asked) == ""
        assert asked[-1].finished.status == run_pb2.RUN_STATUS_AWAITING_INPUT
        assert asked[-1].finished.usage.model_calls == 2
        endpoint.chat.by(playing(answer=Says(["Delete ", "pin.dat [1]"])))
        endpoint.chat.requests.clear()

        events = await chat(agent, user_id=user, session_id="s", message="Cedar", answers_task_id=task.task_id)

    assert text_of(events) == "Delete pin.dat [1]"
    assert endpoint.chat.asked_for == ["grade", ""]
    assert events[-1].finished.usage.model_calls == 2
    messages = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert [message.content for message in messages] == [OPEN, ASKS["prompt"], "Cedar", "Delete pin.dat [1]"]


FAILURES: list[Any] = [
    pytest.param(Fails(429, headers=AT_ONCE), "MODEL_RATE_LIMITED", {}, id="429"),
    pytest.param(Fails(500, headers=AT_ONCE), "MODEL_UNAVAILABLE", {}, id="500"),
    pytest.param(CutsOff(), "MODEL_UNAVAILABLE", {}, id="cut"),
    pytest.param(Fails(401), "MODEL_REFUSED", {"provider_status": "401"}, id="401"),
    pytest.param(Fails(403), "MODEL_REFUSED", {"provider_status": "403"}, id="403"),
    pytest.param(Fails(404), "MODEL_REFUSED", {"provider_status": "404"}, id="404"),
    pytest.param(Refuses(PROVIDERS_WORDS), "MODEL_REFUSED", {"provider_status": "refusal"}, id="refusal"),
    pytest.param(Garbage(PROVIDERS_WORDS), "MODEL_MALFORMED", {}, id="garbage"),
    pytest.param(Hangs(), "TIME_LIMIT", {"limit_seconds": "1"}, id="hangs"),
]


@pytest.mark.parametrize("role", ["search", "grade", "answer"])
@pytest.mark.parametrize(("failure", "reason", "metadata"), FAILURES)
async def test_a_model_that_fails_is_told_by_reason_and_the_question_is_kept(
    system: System,
    endpoint: ModelServer,
    agent_with: AgentWith,
    user: str,
    role: str,
    failure: Reply,
    reason: str,
    metadata: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    endpoint.chat.by(playing(**{role: failure}))
    async with (
        agent_with(first_token_timeout_s=1.0, grade_timeout_s=1.0) as server,
        AgentClient(server.address) as agent,
    ):
        events = []
        with pytest.raises(AskbackError) as failed:
            async for event in agent.stream_chat(user_id=user, session_id="s", message=QUESTION):
                events.append(event)
        assert failed.value.reason == reason
        assert metadata.items() <= failed.value.metadata.items()
        assert (failed.value.retry_after is not None) is (reason == "MODEL_RATE_LIMITED")
        assert kinds(events)[-1] == "finished"
        assert events[-1].finished.error.reason == reason
        [question, *replies] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
        assert question.content == QUESTION
        assert [reply.status for reply in replies] in ([], [session_pb2.MESSAGE_STATUS_FAILED])
        run = await system.storage.get_run(user_id=user, run_id=events[0].run_id)
        assert (run.status, run.error.reason) == (run_pb2.RUN_STATUS_FAILED, reason)
        told = f"{failed.value} {failed.value.metadata} {run.error.message}" + "".join(capsys.readouterr())
        assert not any(words in told for words in (PROVIDERS_WORDS, KEY, QUESTION))
        # The same question again, once the model is well, is answered.
        endpoint.chat.by(playing())
        again = await chat(agent, user_id=user, session_id="s", message=QUESTION)
        assert again[-1].finished.status == run_pb2.RUN_STATUS_COMPLETED


async def test_an_answer_that_breaks_off_is_kept_as_far_as_it_was_told(
    system: System, endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    endpoint.chat.by(playing(answer=CutsOff(["As far ", "as this"])))
    async with agent_with() as server, AgentClient(server.address) as agent:
        events = []
        with pytest.raises(AskbackError) as failed:
            async for event in agent.stream_chat(user_id=user, session_id="s", message=QUESTION):
                events.append(event)
    assert failed.value.reason == "MODEL_UNAVAILABLE"
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert reply.content == text_of(events) == "As far as this"
    assert reply.status == session_pb2.MESSAGE_STATUS_FAILED


async def test_a_stream_that_goes_silent_ends_with_the_turns_limit(
    system: System, endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    endpoint.chat.by(playing(answer=Hangs(["As far ", "as this"])))
    async with agent_with(turn_limit_s=2.0) as server, AgentClient(server.address) as agent:
        with pytest.raises(AskbackError) as failed:
            await chat(agent, user_id=user, session_id="s", message=QUESTION)
        assert failed.value.reason == "TIME_LIMIT"
        await asyncio.wait_for(endpoint.chat.requests[-1].hung_up.wait(), 1)
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert reply.content == "As far as this"


@pytest.mark.parametrize(
    ("role", "reply", "number"),
    [("search", Hangs(), 1), ("grade", Hangs(), 2), ("answer", Hangs(["So "]), 3)],
    ids=["before the first word", "grading", "speaking"],
)
async def test_a_client_that_leaves_closes_the_models_connection(
    system: System, endpoint: ModelServer, agent_with: AgentWith, user: str, role: str, reply: Reply, number: int
) -> None:
    endpoint.chat.by(playing(**{role: reply}))
    loop = asyncio.get_running_loop()
    async with agent_with() as server, AgentClient(server.address) as agent:
        async with agent.stream_chat(user_id=user, session_id="s", message=QUESTION) as stream:
            run_id = (await anext(aiter(stream))).run_id
            request = await endpoint.chat.received(number)
            if role == "answer":
                while not (await anext(aiter(stream))).HasField("content"):
                    pass
            left_at = loop.time()
        await asyncio.wait_for(request.hung_up.wait(), 5)
        assert request.hung_up_at is not None and request.hung_up_at - left_at < 0.25
        run = await until_finished(system.storage, user, run_id)
        assert run.status == run_pb2.RUN_STATUS_CANCELLED


async def test_a_model_that_keeps_on_searching_is_ended(
    endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    endpoint.chat.by(playing(answer=Calls(KNOWLEDGE_TOOL_NAME, {"query": QUESTION})))
    async with agent_with() as server, AgentClient(server.address) as agent:
        with pytest.raises(AskbackError) as failed:
            await chat(agent, user_id=user, session_id="s", message=QUESTION)
    assert failed.value.reason == "AGENT_STEP_LIMIT"
    assert endpoint.chat.asked_for.count("grade") == 1


async def test_a_call_that_fits_no_tool_is_told_to_the_model_and_ends_no_turn(
    endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    calls = [Calls("delete_everything", {}), Calls(KNOWLEDGE_TOOL_NAME, {"question": QUESTION})]
    endpoint.chat.in_order(*calls)
    endpoint.chat.by(playing())
    async with agent_with() as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message=QUESTION)
    assert text_of(events) == "".join(ANSWER).replace("\0", "")


async def test_one_model_may_play_all_roles(endpoint: ModelServer, agent_with: AgentWith, user: str) -> None:
    endpoint.chat.by(playing())
    async with agent_with(fast_model=None, grade_model=None) as server, AgentClient(server.address) as agent:
        await chat(agent, user_id=user, session_id="s", message=QUESTION)
    assert {request.body["model"] for request in endpoint.chat.requests} == {"large"}


async def test_nothing_is_called_before_a_question(endpoint: ModelServer, agent_with: AgentWith) -> None:
    async with agent_with():
        pass
    assert endpoint.chat.requests == []


async def test_a_grader_that_fails_after_an_answer_leaves_the_question_back_pending(
    system: System, endpoint: ModelServer, agent_with: AgentWith, user: str
) -> None:
    endpoint.chat.by(playing(search=Calls(KNOWLEDGE_TOOL_NAME, {"query": OPEN}), grade=Writes(ASKS)))
    async with agent_with() as server, AgentClient(server.address) as agent:
        task = (await chat(agent, user_id=user, session_id="s", message=OPEN))[-2].hitl_request
        endpoint.chat.by(playing(grade=Fails(500, headers=AT_ONCE)))
        with pytest.raises(AskbackError) as failed:
            await chat(agent, user_id=user, session_id="s", message="Cedar")
        assert failed.value.reason == "MODEL_UNAVAILABLE"
        session = await system.storage.get_session(user_id=user, session_id="s")
        assert session.pending_hitl_task_id == task.task_id
        endpoint.chat.by(playing())
        events = await chat(agent, user_id=user, session_id="s", message="Cedar")
    assert events[0].started.answered_task_id == task.task_id
    assert events[-1].finished.status == run_pb2.RUN_STATUS_COMPLETED
