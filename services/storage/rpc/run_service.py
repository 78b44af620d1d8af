from datetime import timedelta
from typing import Any

import grpc.aio

from askback.storage.v1 import run_service_pb2 as wire
from askback.storage.v1.run_service_pb2_grpc import RunServiceServicer
from services.storage.rpc import convert, replies
from services.storage.store.base import ConversationStorage

Context = grpc.aio.ServicerContext[Any, Any]


class RunServicer(RunServiceServicer):
    """Turns of the agent; WatchRun is not here, and answers NOT_IMPLEMENTED.

    `lease` and `hitl_expiry` stand in where a request names none.
    """

    def __init__(self, store: ConversationStorage, *, lease: timedelta, hitl_expiry: timedelta):
        self._store = store
        self._lease = lease
        self._hitl_expiry = hitl_expiry

    async def BeginRun(self, request: wire.BeginRunRequest, context: Context) -> wire.BeginRunResponse:
        asked = convert.begin_run(request, lease=self._lease, time_remaining_s=context.time_remaining())
        return replies.begun_run(await self._store.begin_run(asked))

    async def RenewRun(self, request: wire.RenewRunRequest, context: Context) -> wire.RenewRunResponse:
        run = await self._store.renew_run(*convert.run_name(request), fencing_token=request.fencing_token)
        return wire.RenewRunResponse(run=replies.run(run))

    async def AppendRunEvents(
        self, request: wire.AppendRunEventsRequest, context: Context
    ) -> wire.AppendRunEventsResponse:
        name, events = convert.append_run_events(request)
        appended = await self._store.append_run_events(*name, fencing_token=request.fencing_token, events=events)
        return wire.AppendRunEventsResponse(
            last_sequence=appended.last_sequence, cancel_requested=appended.cancel_requested
        )

    async def FinishRun(self, request: wire.FinishRunRequest, context: Context) -> wire.FinishRunResponse:
        finished = await self._store.finish_run(convert.finish_run(request, expire_after=self._hitl_expiry))
        return replies.finished_run(finished)

    async def GetRun(self, request: wire.GetRunRequest, context: Context) -> wire.GetRunResponse:
        run = await self._store.get_run(*convert.run_name(request))
        return wire.GetRunResponse(run=replies.run(run))

    async def ListRuns(self, request: wire.ListRunsRequest, context: Context) -> wire.ListRunsResponse:
        asked = convert.list_runs(request)
        page = await self._store.list_runs(
            asked.query.user_id, asked.session_id, page_size=asked.page_size, after=asked.after
        )
        return replies.run_page(asked.query, page)

    async def CancelRun(self, request: wire.CancelRunRequest, context: Context) -> wire.CancelRunResponse:
        run = await self._store.cancel_run(*convert.run_name(request))
        return wire.CancelRunResponse(run=replies.run(run))
