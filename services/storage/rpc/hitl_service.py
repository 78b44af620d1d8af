from typing import Any

import grpc.aio

from askback.storage.v1 import hitl_service_pb2 as wire
from askback.storage.v1.hitl_service_pb2_grpc import HitlServiceServicer
from services.storage.rpc import convert, replies
from services.storage.rpc.session_service import PAGE_MAX_BYTES
from services.storage.store.base import ConversationStorage

Context = grpc.aio.ServicerContext[Any, Any]


class HitlServicer(HitlServiceServicer):
    """The questions put to users."""

    def __init__(self, store: ConversationStorage):
        self._store = store

    async def GetHitlTask(self, request: wire.GetHitlTaskRequest, context: Context) -> wire.GetHitlTaskResponse:
        task = await self._store.get_hitl_task(*convert.task_name(request))
        return wire.GetHitlTaskResponse(task=replies.hitl_task(task))

    async def ListHitlTasks(self, request: wire.ListHitlTasksRequest, context: Context) -> wire.ListHitlTasksResponse:
        asked = convert.list_hitl_tasks(request)
        page = await self._store.list_hitl_tasks(
            asked.query.user_id,
            session_id=asked.session_id,
            state=asked.state,
            page_size=asked.page_size,
            after=asked.after,
            max_bytes=PAGE_MAX_BYTES,
        )
        return replies.hitl_task_page(asked.query, page)

    async def CancelHitlTask(
        self, request: wire.CancelHitlTaskRequest, context: Context
    ) -> wire.CancelHitlTaskResponse:
        user_id, task_id, request_id, request_hash = convert.cancel_hitl_task(request)
        task = await self._store.cancel_hitl_task(user_id, task_id, request_id=request_id, request_hash=request_hash)
        return wire.CancelHitlTaskResponse(task=replies.hitl_task(task))
