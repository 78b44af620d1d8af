"""RunService: the turns of the agent."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from askback.client.channel import WATCH_TIMEOUT_S, Metadata, ServiceClient, new_request_id
from askback.client.paging import all_items
from askback.client.sessions import MessageLike
from askback.client.stream import Stream
from askback.client.wire import EnumValue, build
from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import run_pb2
from askback.storage.v1 import run_service_pb2 as wire
from askback.storage.v1.run_service_pb2_grpc import RunServiceStub

if TYPE_CHECKING:
    from askback.storage.v1.run_service_pb2_grpc import RunServiceAsyncStub

RunEventLike = wire.RunEvent | Mapping[str, Any]
RunErrorLike = run_pb2.RunError | Mapping[str, Any]
UsageLike = run_pb2.Usage | Mapping[str, Any]
TaskDraftLike = hitl_pb2.HitlTaskDraft | Mapping[str, Any]

# With ENQUEUE the service takes up to 10 s to answer.
_BEGIN_TIMEOUT_S = 20.0


class RunCalls(ServiceClient):
    """The calls of RunService, which whoever runs a turn makes; durations are seconds."""

    @property
    def _runs(self) -> "RunServiceAsyncStub":
        return self._stub(RunServiceStub)

    async def begin_run(
        self,
        *,
        user_id: str,
        session_id: str = "",
        message: str = "",
        answers_task_id: str = "",
        pending_hitl_policy: EnumValue = "",
        conflict_policy: EnumValue = "",
        lease: float | None = None,
        max_context_messages: int = 0,
        title_if_new: str = "",
        retries_run_id: str = "",
        holder_id: str | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.BeginRunResponse:
        """Takes the session's lease, stores the message, claims the question that it answers.

        With ENQUEUE the answer may take 10 s; a QUEUED run is asked for again with the same request_id.
        """
        request = build(
            wire.BeginRunRequest,
            user_id=user_id,
            session_id=session_id,
            message=message,
            answers_task_id=answers_task_id,
            pending_hitl_policy=pending_hitl_policy,
            conflict_policy=conflict_policy,
            lease=lease,
            max_context_messages=max_context_messages,
            title_if_new=title_if_new,
            retries_run_id=retries_run_id,
            holder_id=holder_id or new_request_id(),
            request_id=request_id or new_request_id(),
        )
        return await self._answer(self._runs.BeginRun, request, timeout, metadata, default_timeout=_BEGIN_TIMEOUT_S)

    async def renew_run(
        self,
        *,
        user_id: str,
        run_id: str,
        fencing_token: int,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> run_pb2.Run:
        """Extends the lease, and tells whether someone asked for a cancel."""
        request = build(
            wire.RenewRunRequest,
            user_id=user_id,
            run_id=run_id,
            fencing_token=fencing_token,
        )
        response = await self._answer(self._runs.RenewRun, request, timeout, metadata)
        return response.run

    async def append_run_events(
        self,
        *,
        user_id: str,
        run_id: str,
        fencing_token: int,
        events: Sequence[RunEventLike],
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.AppendRunEventsResponse:
        request = build(
            wire.AppendRunEventsRequest,
            user_id=user_id,
            run_id=run_id,
            fencing_token=fencing_token,
            events=events,
        )
        return await self._answer(self._runs.AppendRunEvents, request, timeout, metadata)

    async def finish_run(
        self,
        *,
        user_id: str,
        run_id: str,
        fencing_token: int,
        status: EnumValue,
        reply: MessageLike | None = None,
        session_metadata: Mapping[str, Any] | None = None,
        opened_task: TaskDraftLike | None = None,
        error: RunErrorLike | None = None,
        usage: UsageLike | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.FinishRunResponse:
        """Stores the reply, opens or settles a question, and frees the lease: all or nothing."""
        request = build(
            wire.FinishRunRequest,
            user_id=user_id,
            run_id=run_id,
            fencing_token=fencing_token,
            status=status,
            reply=reply,
            metadata=session_metadata,
            opened_task=opened_task,
            error=error,
            usage=usage,
        )
        return await self._answer(self._runs.FinishRun, request, timeout, metadata)

    async def get_run(
        self,
        *,
        user_id: str,
        run_id: str,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> run_pb2.Run:
        request = build(
            wire.GetRunRequest,
            user_id=user_id,
            run_id=run_id,
        )
        response = await self._answer(self._runs.GetRun, request, timeout, metadata)
        return response.run

    async def list_runs(
        self,
        *,
        user_id: str,
        session_id: str,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.ListRunsResponse:
        """One page of a session's runs, newest first."""
        request = build(
            wire.ListRunsRequest,
            user_id=user_id,
            session_id=session_id,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._answer(self._runs.ListRuns, request, timeout, metadata)

    def watch_run(
        self,
        *,
        user_id: str,
        run_id: str,
        after_sequence: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> Stream[wire.WatchRunResponse]:
        """The run's events after a sequence, then those to come; see Stream for how it is left."""
        request = build(
            wire.WatchRunRequest,
            user_id=user_id,
            run_id=run_id,
            after_sequence=after_sequence,
        )
        return self._stream(self._runs.WatchRun, request, timeout, metadata, default_timeout=WATCH_TIMEOUT_S)

    async def cancel_run(
        self,
        *,
        user_id: str,
        run_id: str,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> run_pb2.Run:
        """Asks the holder to stop; of a run that has finished it tells how."""
        request = build(
            wire.CancelRunRequest,
            user_id=user_id,
            run_id=run_id,
        )
        response = await self._answer(self._runs.CancelRun, request, timeout, metadata)
        return response.run

    def runs(
        self,
        *,
        user_id: str,
        session_id: str,
        page_size: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> AsyncIterator[run_pb2.Run]:
        """All of a session's runs, newest first, page by page; `timeout` is for each page."""
        return all_items(
            lambda token: self.list_runs(
                user_id=user_id,
                session_id=session_id,
                page_size=page_size,
                page_token=token,
                timeout=timeout,
                metadata=metadata,
            ),
            lambda page: page.runs,
        )
