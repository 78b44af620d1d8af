"""Gives each call an id: the caller's x-request-id where it sent a usable one."""

from typing import Any
from uuid import uuid4

from structlog.contextvars import bind_contextvars

from services.runtime.interceptors.call import Call, Context, Proceed

HEADER = "x-request-id"
_LONGEST = 128


async def request_id(call: Call, proceed: Proceed) -> Any:
    """Binds the id for the log, and sends it back in the trailing metadata."""
    call.request_id = _sent_by_caller(call.context) or uuid4().hex
    # A call has a task, and so a context, of its own: nothing needs to be unbound.
    bind_contextvars(request_id=call.request_id, rpc=call.method)
    call.context.set_trailing_metadata(((HEADER, call.request_id),))
    return await proceed()


def _sent_by_caller(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == HEADER and isinstance(value, str):
            usable = 0 < len(value) <= _LONGEST and value.isascii() and value.isprintable() and not value.isspace()
            return value.strip() if usable else ""
    return ""
