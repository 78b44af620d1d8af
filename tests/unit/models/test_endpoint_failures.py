"""What a provider's refusal means, and how long it asks to wait."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import openai
import pytest

from services.agent.errors import ModelRateLimited, ModelUnavailable
from services.agent.models.openai_compatible.failures import failure_of


def refused(status: int, **headers: str) -> openai.APIStatusError:
    request = httpx2.Request("POST", "http://endpoint/v1/chat/completions")
    return openai.APIStatusError("no", response=httpx2.Response(status, headers=headers, request=request), body=None)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "1e300"}, 3600),
        ({"retry-after": "inf"}, 3600),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 99 Foo 2030"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
    ],
)
def test_the_wait_is_read_in_any_form_and_bounded(headers: dict[str, str], wait_s: float | None) -> None:
    failure = failure_of(refused(429, **headers))
    assert failure.wait_s == wait_s
    assert isinstance(failure.error, ModelRateLimited) and failure.error.retry_after_s is not None
    assert failure_of(refused(503, **headers)).wait_s == wait_s


def test_the_wait_may_be_a_date() -> None:
    at = datetime.now(UTC) + timedelta(seconds=60)
    wait_s = failure_of(refused(429, **{"retry-after": format_datetime(at, usegmt=True)})).wait_s
    assert wait_s is not None and 50 < wait_s <= 60


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 529])
def test_what_may_pass_is_an_absence(status: int) -> None:
    assert isinstance(failure_of(refused(status)).error, ModelUnavailable)
