"""What a call of an OpenAI-compatible endpoint failed with, in the agent's own errors.

Of what the provider said only its status is kept: its words may repeat the user's, or the key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import openai
import structlog

from services.agent.errors import ModelMalformed, ModelRateLimited, ModelRefused, ModelUnavailable
from services.runtime.errors import ServiceError

log = structlog.get_logger()

CONTENT_FILTER = "content_filter"
REFUSAL = "refusal"

_FILTERED = frozenset({CONTENT_FILTER, "content_policy_violation"})
_RATE_LIMITED = frozenset({"rate_limit_exceeded", "rate_limit_error"})
_NO_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
# Told to the caller where the provider does not say how long.
_RETRY_AFTER_S = 5.0
_LONGEST_RETRY_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that a call ends with, unless it is made again; and how long the provider asks to wait."""

    error: ServiceError
    wait_s: float | None = None


def failure_of(error: Exception) -> Failure:
    """What an exception of the client library means; it also raises its own on replies that it cannot read."""
    if isinstance(error, ServiceError):
        return Failure(error)
    log.warning("model_call_failed", error=type(error).__name__, status=getattr(error, "status_code", None))
    if isinstance(error, openai.APIStatusError):
        return _by_status(error, error.status_code, wait_s=_retry_after(error.response.headers))
    if isinstance(error, openai.APIConnectionError):
        return Failure(ModelUnavailable())
    if isinstance(error, openai.ContentFilterFinishReasonError):
        return Failure(ModelRefused(CONTENT_FILTER))
    if isinstance(error, openai.APIError):
        # An error in the middle of a stream has no status but what its body says.
        status = int(error.code) if error.code and error.code.isdecimal() and len(error.code) == 3 else 500
        return _by_status(error, status, wait_s=None)
    return Failure(ModelMalformed())


def _by_status(error: openai.APIError, status: int, *, wait_s: float | None) -> Failure:
    named = {error.code, error.type}
    if named & _FILTERED:
        return Failure(ModelRefused(CONTENT_FILTER))
    if named & _NO_QUOTA:
        return Failure(ModelRefused(str(status)))
    if status == 429 or named & _RATE_LIMITED:
        return Failure(ModelRateLimited(retry_after_s=_RETRY_AFTER_S if wait_s is None else wait_s), wait_s)
    if status in (408, 409) or (status >= 500 and status != 501):
        return Failure(ModelUnavailable(), wait_s)
    return Failure(ModelRefused(str(status)))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from either header in either form; None where there is none that can be read."""
    if (seconds := _number(headers.get("retry-after-ms"))) is not None:
        seconds /= 1000
    elif (seconds := _number(given := headers.get("retry-after"))) is None and given:
        try:
            at = parsedate_to_datetime(given)
        except ValueError:
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return None if seconds is None else min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number == number else None
