"""askback.agent.v1.AgentService."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc.aio

from askback.agent.v1 import agent_service_pb2, agent_service_pb2_grpc
from services.agent.knowledge.knowledge_base import KnowledgeBase
from services.agent.rpc.convert import ChatCollector, EventWriter, turn_request
from services.agent.runner import TurnRunner
from services.agent.turn import TurnEvent

Context = grpc.aio.ServicerContext[Any, Any]


class AgentServicer(agent_service_pb2_grpc.AgentServiceServicer):
    """The methods that it lacks are its base class's, which answers NOT_IMPLEMENTED."""

    def __init__(self, *, runner: TurnRunner, knowledge: KnowledgeBase) -> None:
        self._runner = runner
        self._knowledge = knowledge

    async def Chat(self, request: agent_service_pb2.ChatRequest, context: Context) -> agent_service_pb2.ChatResponse:
        collector = ChatCollector()
        async with aclosing(self._events(request, streamed=False)) as events:
            async for event in events:
                collector.add(event)
        return collector.response

    # The generated type knows generators alone; writing costs less for each event.
    async def StreamChat(  # type: ignore[override]
        self, request: agent_service_pb2.ChatRequest, context: Context
    ) -> None:
        writer = EventWriter()
        async with aclosing(self._events(request, streamed=True)) as events:
            async for event in events:
                await context.write(writer.chat_event(event))

    async def _events(self, request: agent_service_pb2.ChatRequest, *, streamed: bool) -> AsyncGenerator[TurnEvent]:
        turn = turn_request(request)
        if turn.collection:
            # Before anything is stored.
            await self._knowledge.require_collection(turn.collection)
        async with self._runner.turn(turn, streamed=streamed) as events:
            async for event in events:
                yield event
