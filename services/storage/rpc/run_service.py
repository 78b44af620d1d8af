from datetime import timedelta
from typing import Any

import grpc.aio

from askback.storage.v1 import run_service_pb2 as wire
from askback.storage.v1.run_service_pb2_grpc import RunServiceServicer
from services.storage.rpc import convert, replies
from services.storage.store.base import ConversationStorage

Context = grpc.aio.ServicerContext[Any, Any]


class RunServicer(RunServiceServicer):
    """Turns of the agent; what is not here answers NOT_IMPLEMENTED.

    `lease` and `hitl_expiry` stand in where a request names none.
    """

    def __init__(self, store: ConversationStorage, *, lease: timedelta, hitl_expiry: timedelta):
        self._store = store
        self._lease = lease
        self._hitl_expiry = hitl_expiry

    async def BeginRun(self, request: wire.BeginRunRequest, context: Context) -> wire.BeginRunResponse:
        begun = await self._store.begin_run(convert.begin_run(request, lease=self._lease))
        return replies.begun_run(begun)

    async def RenewRun(self, request: wire.RenewRunRequest, context: Context) -> wire.RenewRunResponse:
        run = await self._store.renew_run(*convert.run_name(request), fencing_token=request.fencing_token)
        return wire.RenewRunResponse(run=replies.run(run))

    async def FinishRun(self, request: wire.FinishRunRequest, context: Context) -> wire.FinishRunResponse:
        finished = await self._store.finish_run(convert.finish_run(request, expire_after=self._hitl_expiry))
        return replies.finished_run(finished)

    async def GetRun(self, request: wire.GetRunRequest, context: Context) -> wire.GetRunResponse:
        run = await self._store.get_run(*convert.run_name(request))
        return wire.GetRunResponse(run=replies.run(run))
