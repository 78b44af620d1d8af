"""One line of log for each call: which method, how it ended, how long it took, for whom; never what was said."""

import asyncio
from time import perf_counter
from typing import Any

import grpc
import grpc.aio
import structlog

from services.runtime.interceptors.call import Call, Context, Proceed

_log = structlog.get_logger()


async def access_log(call: Call, proceed: Proceed) -> Any:
    began = perf_counter()
    code = "OK"
    try:
        result = await proceed()
        code = _ending(call, otherwise="OK")
        return result
    except asyncio.CancelledError:
        code = "DEADLINE_EXCEEDED" if call.context.time_remaining() == 0 else "CANCELLED"
        raise
    except BaseException:
        # The errors layer lets through a status already sent, and writes to a caller who has left.
        code = _ending(call, otherwise="CANCELLED")
        raise
    finally:
        fields: dict[str, Any] = {
            "code": code,
            "ms": round((perf_counter() - began) * 1000, 2),
            "peer": _without_port(call.context.peer()),
        }
        if call.reason:
            fields["reason"] = call.reason
        if call.plumbing:
            _log.debug("call", **fields)
        else:
            _log.info("call", **fields)


def _ending(call: Call, *, otherwise: str) -> str:
    if call.code:
        return call.code
    code = _code_set(call.context)
    return otherwise if code is None else code.name


def _code_set(context: Context) -> grpc.StatusCode | None:
    code: object = context.code()
    return code if isinstance(code, grpc.StatusCode) else None


def _without_port(peer: str) -> str:
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
