"""AgentService: questions and answers."""

from typing import TYPE_CHECKING

from askback.agent.v1 import agent_service_pb2 as wire
from askback.agent.v1 import chat_pb2
from askback.agent.v1.agent_service_pb2_grpc import AgentServiceStub
from askback.client.channel import CHAT_TIMEOUT_S, WATCH_TIMEOUT_S, Metadata, ServiceClient, new_request_id
from askback.client.stream import Stream
from askback.client.wire import EnumValue, build
from askback.storage.v1 import run_pb2

if TYPE_CHECKING:
    from askback.agent.v1.agent_service_pb2_grpc import AgentServiceAsyncStub


class AgentClient(ServiceClient):
    """The agent, at `address`."""

    @property
    def _agent(self) -> "AgentServiceAsyncStub":
        return self._stub(AgentServiceStub)

    async def chat(
        self,
        *,
        user_id: str,
        message: str = "",
        session_id: str = "",
        answers_task_id: str = "",
        pending_hitl_policy: EnumValue = "",
        conflict_policy: EnumValue = "",
        disconnect_policy: EnumValue = "",
        collection: str = "",
        reconnect_grace: float | None = None,
        retries_run_id: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.ChatResponse:
        """One turn, answered whole."""
        request = build(
            wire.ChatRequest,
            user_id=user_id,
            message=message,
            session_id=session_id,
            answers_task_id=answers_task_id,
            pending_hitl_policy=pending_hitl_policy,
            conflict_policy=conflict_policy,
            disconnect_policy=disconnect_policy,
            collection=collection,
            reconnect_grace=reconnect_grace,
            retries_run_id=retries_run_id,
            request_id=request_id or new_request_id(),
        )
        return await self._answer(self._agent.Chat, request, timeout, metadata, default_timeout=CHAT_TIMEOUT_S)

    def stream_chat(
        self,
        *,
        user_id: str,
        message: str = "",
        session_id: str = "",
        answers_task_id: str = "",
        pending_hitl_policy: EnumValue = "",
        conflict_policy: EnumValue = "",
        disconnect_policy: EnumValue = "",
        collection: str = "",
        reconnect_grace: float | None = None,
        retries_run_id: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Stream[chat_pb2.ChatEvent]:
        """One turn, told as it happens; see Stream for how it is left."""
        request = build(
            wire.ChatRequest,
            user_id=user_id,
            message=message,
            session_id=session_id,
            answers_task_id=answers_task_id,
            pending_hitl_policy=pending_hitl_policy,
            conflict_policy=conflict_policy,
            disconnect_policy=disconnect_policy,
            collection=collection,
            reconnect_grace=reconnect_grace,
            retries_run_id=retries_run_id,
            request_id=request_id or new_request_id(),
        )
        return self._stream(self._agent.StreamChat, request, timeout, metadata, default_timeout=CHAT_TIMEOUT_S)

    def watch_run(
        self,
        *,
        user_id: str,
        run_id: str,
        after_sequence: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Stream[chat_pb2.ChatEvent]:
        """A run's events after a sequence, then those to come until its end."""
        request = build(
            wire.WatchRunRequest,
            user_id=user_id,
            run_id=run_id,
            after_sequence=after_sequence,
        )
        return self._stream(self._agent.WatchRun, request, timeout, metadata, default_timeout=WATCH_TIMEOUT_S)

    async def cancel_run(
        self,
        *,
        user_id: str,
        run_id: str,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> run_pb2.Run:
        """Stops a run; what it has said so far is kept."""
        request = build(
            wire.CancelRunRequest,
            user_id=user_id,
            run_id=run_id,
        )
        response = await self._answer(self._agent.CancelRun, request, timeout, metadata)
        return response.run
