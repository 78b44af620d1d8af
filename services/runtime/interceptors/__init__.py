"""What every call passes through, in which order, and why."""

from collections.abc import Mapping

from services.runtime.interceptors.access_log import access_log
from services.runtime.interceptors.call import Chain
from services.runtime.interceptors.errors import Errors
from services.runtime.interceptors.live_calls import LiveCalls
from services.runtime.interceptors.request_id import request_id
from services.runtime.interceptors.time_limit import TimeLimits

__all__ = ["LiveCalls", "chain"]


def chain(
    *, live_calls: LiveCalls, unary_limit_s: float, stream_limit_s: float, limits_s: Mapping[str, float]
) -> Chain:
    return Chain(
        [
            # Outermost, so that a call counts as running until every other layer is through with it.
            live_calls,
            # Before anything is logged: each line of a call carries its id.
            request_id,
            # Outside the errors layer, to log the status that the caller gets rather than what was raised.
            access_log,
            # Outside all that may refuse a call, since a refusal is an error raised.
            Errors(live_calls),
            # Innermost: what it measures and cancels is the handler alone.
            TimeLimits(unary_s=unary_limit_s, stream_s=stream_limit_s, methods_s=limits_s),
        ]
    )
