import asyncio
import gc

import grpc
import pytest

from askback.agent.v1 import chat_pb2
from askback.client import AgentClient, ModelUnavailable
from tests.integration.client.scripted import Failure, Services, answered_turn, event

# How soon a handler must learn that its caller has left.
PROMPTLY_S = 2.0


async def test_a_stream_gives_every_event_in_order_and_ends(services: Services) -> None:
    turn = answered_turn()
    services.agent.turns = [turn]
    async with AgentClient(services.address) as agent, agent.stream_chat(user_id="u", message="hi") as stream:
        assert [event async for event in stream] == turn


async def test_a_thousand_events_come_before_the_error_that_ends_them(services: Services) -> None:
    failure = Failure(grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE")
    flood = [event(sequence, content=chat_pb2.ContentDelta(text="x" * 100)) for sequence in range(1, 1001)]
    services.agent.turns = [[*flood, failure]]
    seen = 0
    async with AgentClient(services.address) as agent:
        with pytest.raises(ModelUnavailable):
            async for _ in agent.stream_chat(user_id="u", message="hi"):
                seen += 1
    assert seen == 1000


async def test_breaking_out_of_the_loop_cancels_the_servers_handler(services: Services) -> None:
    services.agent.turns, services.agent.hangs_after_events = [answered_turn()], True
    async with AgentClient(services.address) as agent:
        async for _ in agent.stream_chat(user_id="u", message="hi"):
            break
        await asyncio.wait_for(services.agent.recorder.handler_left.wait(), PROMPTLY_S)


async def test_leaving_the_context_cancels_the_servers_handler(services: Services) -> None:
    services.agent.turns, services.agent.hangs_after_events = [answered_turn()], True
    async with AgentClient(services.address) as agent:
        async with agent.stream_chat(user_id="u", message="hi") as stream:
            await anext(stream)
        await asyncio.wait_for(services.agent.recorder.handler_left.wait(), PROMPTLY_S)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_cancelling_the_reading_task_cancels_the_servers_handler(services: Services) -> None:
    services.agent.turns, services.agent.hangs_after_events = [answered_turn()], True
    async with AgentClient(services.address) as agent:

        async def read_all() -> None:
            async for _ in agent.stream_chat(user_id="u", message="hi"):
                pass

        reading = asyncio.create_task(read_all())
        await services.agent.recorder.handler_began.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.wait_for(services.agent.recorder.handler_left.wait(), PROMPTLY_S)


async def test_an_error_in_the_loop_cancels_the_servers_handler(services: Services) -> None:
    services.agent.turns, services.agent.hangs_after_events = [answered_turn()], True
    async with AgentClient(services.address) as agent:
        with pytest.raises(ZeroDivisionError):
            async for received in agent.stream_chat(user_id="u", message="hi"):
                _ = 1 // (received.sequence - 1)
        await asyncio.wait_for(services.agent.recorder.handler_left.wait(), PROMPTLY_S)


async def test_a_stream_that_is_never_read_makes_no_call(services: Services) -> None:
    async with AgentClient(services.address) as agent:
        agent.stream_chat(user_id="u", message="hi")
        gc.collect()
    assert services.agent.recorder.calls == []


async def test_closing_a_stream_twice_is_harmless(services: Services) -> None:
    services.agent.turns = [answered_turn()]
    async with AgentClient(services.address) as agent:
        stream = agent.stream_chat(user_id="u", message="hi")
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
