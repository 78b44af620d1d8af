"""Turns what a handler raises into the status that its caller gets, for every kind of call."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import structlog

from services.runtime.errors import Internal, Kind, NotImplementedYet, ServiceError, ShuttingDown
from services.runtime.interceptors.call import Call, Proceed
from services.runtime.interceptors.live_calls import LiveCalls
from services.runtime.interceptors.request_id import HEADER
from services.runtime.interceptors.status import DETAILS_HEADER, status_of

_log = structlog.get_logger()

_CODES = {kind: code for kind in Kind for code in grpc.StatusCode if code.value[0] == kind.value}


class Errors:
    def __init__(self, live_calls: LiveCalls):
        self._live_calls = live_calls

    async def __call__(self, call: Call, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except (grpc.aio.AbortError, grpc.aio.InternalError):
            # The status is sent already; or a write found its caller gone.
            raise
        except asyncio.CancelledError as error:
            failure = self._of_cancelled(call, error)
        except ServiceError as error:
            failure = error
        except Exception as error:
            failure = _of_exception(call, error)
        await _end(call, failure)

    def _of_cancelled(self, call: Call, error: asyncio.CancelledError) -> ServiceError:
        task = asyncio.current_task()
        if call.cut_off:
            if task is not None:
                task.uncancel()
            return ShuttingDown()
        if task is None or task.cancelling():
            # The caller has left, or its deadline has passed: there is nobody to tell.
            raise error
        # Not this call was cancelled, but something that it waited for; grpc would send no status at all.
        if self._live_calls.stopping:
            return ShuttingDown()
        return _unforeseen(call, error)


def _of_exception(call: Call, error: Exception) -> ServiceError:
    if isinstance(error, NotImplementedError) and call.context.code() is grpc.StatusCode.UNIMPLEMENTED:
        # The generated base class, of a method that its servicer does not have.
        return NotImplementedYet(call.method.rpartition("/")[2])
    if isinstance(error, ExceptionGroup):
        # A TaskGroup wraps what its tasks raise.
        told, unforeseen = error.split(ServiceError)
        if told is not None and unforeseen is None:
            return _first(told)
    return _unforeseen(call, error)


def _first(group: ExceptionGroup[ServiceError]) -> ServiceError:
    error: ServiceError | ExceptionGroup[ServiceError] = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _unforeseen(call: Call, error: BaseException) -> ServiceError:
    _log.error("unforeseen_error", exc_info=error)
    return Internal(call.request_id)


async def _end(call: Call, failure: ServiceError) -> None:
    call.code, call.reason = failure.kind.name, failure.reason
    if call.context.done():
        # The handler has sent a status and then failed on its way out; that one stands.
        return
    status = status_of(failure)
    await call.context.abort(
        _CODES[failure.kind],
        status.message,
        trailing_metadata=((HEADER, call.request_id), (DETAILS_HEADER, status.SerializeToString())),
    )
