"""HitlService: the questions put to users."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from askback.client.channel import Metadata, ServiceClient, new_request_id
from askback.client.paging import all_items
from askback.client.wire import EnumValue, build
from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import hitl_service_pb2 as wire
from askback.storage.v1.hitl_service_pb2_grpc import HitlServiceStub

if TYPE_CHECKING:
    from askback.storage.v1.hitl_service_pb2_grpc import HitlServiceAsyncStub


class HitlCalls(ServiceClient):
    """The calls of HitlService."""

    @property
    def _hitl(self) -> "HitlServiceAsyncStub":
        return self._stub(HitlServiceStub)

    async def get_hitl_task(
        self,
        *,
        user_id: str,
        task_id: str,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> hitl_pb2.HitlTask:
        request = build(
            wire.GetHitlTaskRequest,
            user_id=user_id,
            task_id=task_id,
        )
        response = await self._answer(self._hitl.GetHitlTask, request, timeout, metadata)
        return response.task

    async def list_hitl_tasks(
        self,
        *,
        user_id: str,
        session_id: str = "",
        state: EnumValue = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.ListHitlTasksResponse:
        """One page of a user's questions, oldest first; an empty session_id means all sessions."""
        request = build(
            wire.ListHitlTasksRequest,
            user_id=user_id,
            session_id=session_id,
            state=state,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._answer(self._hitl.ListHitlTasks, request, timeout, metadata)

    async def cancel_hitl_task(
        self,
        *,
        user_id: str,
        task_id: str,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> hitl_pb2.HitlTask:
        """Withdraws a PENDING question; the session goes on without it."""
        request = build(
            wire.CancelHitlTaskRequest,
            user_id=user_id,
            task_id=task_id,
            request_id=request_id or new_request_id(),
        )
        response = await self._answer(self._hitl.CancelHitlTask, request, timeout, metadata)
        return response.task

    def hitl_tasks(
        self,
        *,
        user_id: str,
        session_id: str = "",
        state: EnumValue = "",
        page_size: int = 0,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> AsyncIterator[hitl_pb2.HitlTask]:
        """All of a user's questions, oldest first, page by page; `timeout` is for each page."""
        return all_items(
            lambda token: self.list_hitl_tasks(
                user_id=user_id,
                session_id=session_id,
                state=state,
                page_size=page_size,
                page_token=token,
                timeout=timeout,
                metadata=metadata,
            ),
            lambda page: page.tasks,
        )
