"""How turns end that do not end well: the caller leaves, the model fails, time runs out, the service stops."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from askback.client import AgentClient, AskbackError, Internal, RunInProgress, ShuttingDown, TimeLimit, TooLarge
from askback.client import ModelMalformed as ModelMalformedTold
from askback.storage.v1 import run_pb2, session_pb2
from services.agent.errors import ModelMalformed
from tests.e2e.harness import OpenAgent, System, chat, kinds, text_of, until, until_finished
from tests.e2e.slow_model import speaking


async def test_leaving_stops_the_model_at_once_and_keeps_what_was_said(
    system: System, open_agent: OpenAgent, user: str
) -> None:
    model, models = speaking("The first half, ", "and the second.")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        async with agent.stream_chat(user_id=user, session_id="s", message="Tell me") as stream:
            async for event in stream:
                run_id = event.run_id
                if event.HasField("content"):
                    break
        # It is a matter of milliseconds; the model would otherwise wait for ever.
        await asyncio.wait_for(model.stopped.wait(), 1)
        run = await until_finished(system.storage, user, run_id)
        assert run.status == run_pb2.RUN_STATUS_CANCELLED
        question, reply = (await system.storage.list_messages(user_id=user, session_id="s")).messages
        assert (question.content, reply.content) == ("Tell me", "The first half, ")
        assert reply.status == session_pb2.MESSAGE_STATUS_STOPPED


async def test_a_stopped_answer_is_in_the_next_turns_context(system: System, open_agent: OpenAgent, user: str) -> None:
    model, models = speaking("The first half, ", "and the second.")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        async with agent.stream_chat(user_id=user, session_id="s", message="Tell me") as stream:
            async for event in stream:
                run_id = event.run_id
                if event.HasField("content"):
                    break
        await until_finished(system.storage, user, run_id)
        model.go_on()
        await chat(agent, user_id=user, session_id="s", message="Go on")
    assert [message.text for message in model.seen[-1]][1:4] == ["Tell me", "The first half, ", "Go on"]


async def test_a_failed_turn_keeps_the_question_and_what_came(system: System, open_agent: OpenAgent, user: str) -> None:
    _, models = speaking("As far as this", fails_with=ModelMalformed())
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        events = []
        with pytest.raises(AskbackError) as failed:
            async for event in agent.stream_chat(user_id=user, session_id="s", message="Tell me"):
                events.append(event)
    assert failed.value.reason == "MODEL_MALFORMED"
    assert failed.value.metadata["run_id"] == events[0].run_id
    assert failed.value.metadata["session_id"] == "s"
    assert kinds(events)[-1] == "finished"
    assert kinds(events).count("finished") == 1
    finished = events[-1].finished
    assert (finished.status, finished.error.reason) == (run_pb2.RUN_STATUS_FAILED, "MODEL_MALFORMED")
    question, reply = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert (question.content, reply.content) == ("Tell me", "As far as this")
    assert reply.status == session_pb2.MESSAGE_STATUS_FAILED
    run = await system.storage.get_run(user_id=user, run_id=events[0].run_id)
    assert (run.error.code, run.error.reason) == (13, "MODEL_MALFORMED")
    assert (await system.storage.get_session(user_id=user, session_id="s")).active_run_id == ""


async def test_an_unforeseen_fault_tells_nothing_of_itself(system: System, open_agent: OpenAgent, user: str) -> None:
    _, models = speaking("So far", fails_with=RuntimeError("the secret is 4711"))
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        with pytest.raises(Internal) as failed:
            await chat(agent, user_id=user, session_id="s", message="Tell me")
    assert "4711" not in str(failed.value) + str(failed.value.metadata)
    assert failed.value.metadata["request_id"]
    run = await system.storage.get_run(user_id=user, run_id=failed.value.metadata["run_id"])
    assert "4711" not in run.error.message


async def test_an_answer_that_fails_leaves_the_question_back_pending(
    system: System, open_agent: OpenAgent, user: str
) -> None:
    asked = await system.agent.chat(user_id=user, session_id="s", message="How do I reset the admin PIN?")
    _, models = speaking("So", fails_with=ModelMalformed())
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        with pytest.raises(AskbackError):
            await chat(agent, user_id=user, session_id="s", message="Cedar")
    session = await system.storage.get_session(user_id=user, session_id="s")
    assert session.pending_hitl_task_id == asked.hitl_request.task_id
    again = await system.agent.chat(user_id=user, session_id="s", message="Cedar")
    assert "pin.dat" in again.response


async def test_a_turn_that_takes_too_long_is_ended(system: System, open_agent: OpenAgent, user: str) -> None:
    _, models = speaking("So ", "never said")
    async with open_agent(models=models, turn_limit_s=1.0) as server, AgentClient(server.address) as agent:
        events = []
        with pytest.raises(TimeLimit):
            async for event in agent.stream_chat(user_id=user, session_id="s", message="Tell me"):
                events.append(event)
    assert events[-1].finished.error.reason == "TIME_LIMIT"
    assert text_of(events) == "So "
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert reply.status == session_pb2.MESSAGE_STATUS_FAILED


async def test_a_second_turn_at_once_is_rejected(system: System, open_agent: OpenAgent, user: str) -> None:
    model, models = speaking("One ", "two")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        async with agent.stream_chat(user_id=user, session_id="s", message="First") as stream:
            first = await anext(aiter(stream))
            with pytest.raises(RunInProgress) as refused:
                await chat(agent, user_id=user, session_id="s", message="Second")
            assert refused.value.metadata["active_run_id"] == first.run_id
            assert refused.value.retry_after
            model.go_on()
            rest = [event async for event in stream]
        assert text_of(rest) == "One two"
    assert (await system.storage.get_session(user_id=user, session_id="s")).message_count == 2


async def test_shutting_down_stores_the_turns_under_way(system: System, open_agent: OpenAgent, user: str) -> None:
    _, models = speaking("So far", "never said")
    async with AsyncExitStack() as serving:
        server = await serving.enter_async_context(open_agent(models=models))
        async with AgentClient(server.address) as agent:
            stopping: asyncio.Task[None] | None = None
            events = []
            with pytest.raises(ShuttingDown):
                async for event in agent.stream_chat(user_id=user, session_id="s", message="Tell me"):
                    events.append(event)
                    if event.HasField("content"):
                        stopping = asyncio.create_task(serving.aclose())
            assert stopping is not None
            await stopping
    assert kinds(events).count("finished") == 1
    assert events[-1].finished.error.reason == "SHUTTING_DOWN"
    run = await system.storage.get_run(user_id=user, run_id=events[-1].run_id)
    assert (run.status, run.error.reason) == (run_pb2.RUN_STATUS_FAILED, "SHUTTING_DOWN")
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert reply.content == "So far"
    assert (await system.storage.get_session(user_id=user, session_id="s")).active_run_id == ""


async def test_nul_in_a_models_words_is_dropped_and_all_else_is_kept(
    system: System, open_agent: OpenAgent, user: str
) -> None:
    said = "a\0b 👩‍👩‍👧 می‌خواهم क्‍ष"
    _, models = speaking(said)
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message="Tell me")
    assert text_of(events) == said.replace("\0", "")
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert reply.content == text_of(events)


async def test_what_is_said_before_a_search_is_no_part_of_the_answer(
    system: System, open_agent: OpenAgent, user: str
) -> None:
    model, models = speaking("The answer.")
    model.before_search = "Let me look. "
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        asked = await chat(agent, user_id=user, session_id="s", message="How do I reset the admin PIN?")
        assert text_of(asked) == ""
        assert asked[-1].finished.status == run_pb2.RUN_STATUS_AWAITING_INPUT
        answered = await chat(agent, user_id=user, session_id="t", message="How many requests does API v3 allow?")
    assert text_of(answered) == "The answer."
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="t")).messages
    assert reply.content == "The answer."


async def test_an_answer_without_a_search_is_told_whole(system: System, open_agent: OpenAgent, user: str) -> None:
    model, models = speaking("Good morning", " to you")
    model.query = None
    model.go_on()
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message="Good morning")
    assert text_of(events) == "Good morning to you"
    assert "rag_trace" not in kinds(events)


async def test_a_model_that_says_nothing_is_a_failure(system: System, open_agent: OpenAgent, user: str) -> None:
    _, models = speaking("")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        with pytest.raises(ModelMalformedTold):
            await chat(agent, user_id=user, session_id="s", message="Tell me")


async def test_the_trace_of_a_stopped_answer_is_kept_with_it(system: System, open_agent: OpenAgent, user: str) -> None:
    _, models = speaking("The first half, ", "and the second.")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        message = "How many requests per minute does API v3 allow?"
        async with agent.stream_chat(user_id=user, session_id="s", message=message) as stream:
            async for event in stream:
                run_id = event.run_id
                if event.HasField("content"):
                    break
        await until_finished(system.storage, user, run_id)
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert reply.status == session_pb2.MESSAGE_STATUS_STOPPED
    assert reply.rag_trace.retrieved_chunks


async def test_leaving_a_resumed_turn_puts_the_question_back(system: System, open_agent: OpenAgent, user: str) -> None:
    asked = await system.agent.chat(user_id=user, session_id="s", message="How do I reset the admin PIN?")
    _, models = speaking("So ", "never said")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        async with agent.stream_chat(user_id=user, session_id="s", message="Cedar") as stream:
            async for event in stream:
                run_id = event.run_id
                if event.HasField("content"):
                    break
        await until_finished(system.storage, user, run_id)
    session = await system.storage.get_session(user_id=user, session_id="s")
    assert session.pending_hitl_task_id == asked.hitl_request.task_id
    assert session.active_run_id == ""


@pytest.mark.parametrize("query", ["a\0b", "a lone \ud83d surrogate"])
async def test_what_a_model_searches_for_cannot_break_the_turn(
    system: System, open_agent: OpenAgent, user: str, query: str
) -> None:
    model, models = speaking("The answer.")
    model.query = query
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        events = await chat(agent, user_id=user, session_id="s", message="How do I reset the admin PIN?")
    assert kinds(events)[-1] == "finished"
    assert (await system.storage.get_session(user_id=user, session_id="s")).active_run_id == ""


async def test_a_reply_past_the_limit_of_a_message_is_cut_short_and_kept(
    system: System, open_agent: OpenAgent, user: str
) -> None:
    pieces = ["x" * 65_536] * 17
    model, models = speaking(*pieces)
    model.go_on()
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        events = []
        with pytest.raises(TooLarge):
            async for event in agent.stream_chat(user_id=user, session_id="s", message="Tell me"):
                events.append(event)
    [_, reply] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert reply.content == text_of(events) == "".join(pieces[:16])
    assert reply.status == session_pb2.MESSAGE_STATUS_FAILED


async def test_a_deleted_session_stays_deleted_when_its_turn_ends(
    system: System, open_agent: OpenAgent, user: str
) -> None:
    model, models = speaking("One ", "two")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        with pytest.raises(AskbackError) as ended:
            async for event in agent.stream_chat(user_id=user, session_id="s", message="Tell me"):
                if event.HasField("content") and not model.stopped.is_set():
                    await system.storage.delete_session(user_id=user, session_id="s")
                    model.go_on()
                assert not event.HasField("finished")
    assert ended.value.reason == "SESSION_DELETED"
    with pytest.raises(AskbackError):
        await system.storage.get_session(user_id=user, session_id="s")


async def test_no_call_is_left_running_when_its_caller_is_gone(
    system: System, open_agent: OpenAgent, user: str
) -> None:
    _, models = speaking("One ", "two")
    async with open_agent(models=models) as server, AgentClient(server.address) as agent:
        async with agent.stream_chat(user_id=user, session_id="s", message="Tell me") as stream:
            await anext(aiter(stream))
            assert server.live_calls == 1
        await until(lambda: server.live_calls == 0)
