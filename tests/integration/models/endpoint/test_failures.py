"""What passes by itself is tried again; what does not is told by its reason."""

import time
from typing import Any

import pytest

from services.agent.errors import ModelMalformed, ModelRateLimited, ModelRefused, ModelUnavailable
from services.agent.schemas import (
    Complexity,
)
from services.runtime.errors import ServiceError
from tests.integration.models.endpoint.asking import AT_ONCE, KEY, PLAN, QUESTION, Endpoint, pieces, said
from tests.model_server.replies import (
    Calls,
    CutsOff,
    Fails,
    FailsInStream,
    Garbage,
    Refuses,
    Reply,
    Says,
    Writes,
)
from tests.model_server.server import ModelServer

PASSING: list[Any] = [
    pytest.param(Fails(429, headers=AT_ONCE), id="429"),
    pytest.param(Fails(500, headers=AT_ONCE), id="500"),
    pytest.param(Fails(503, headers=AT_ONCE), id="503"),
    pytest.param(CutsOff(), id="cut"),
]


@pytest.mark.parametrize("reply", PASSING)
async def test_a_form_is_asked_for_again_after_what_passes(
    server: ModelServer, endpoint: Endpoint, reply: Reply
) -> None:
    server.chat.in_order(reply, Writes(PLAN))
    async with endpoint() as models:
        assert (await models.question.plan(QUESTION)).complexity is Complexity.COMPLEX


@pytest.mark.parametrize("reply", PASSING)
async def test_an_answer_is_asked_for_again_after_what_passes(
    server: ModelServer, endpoint: Endpoint, reply: Reply
) -> None:
    server.chat.in_order(reply, Says(["Hello ", "there"]))
    async with endpoint() as models:
        assert await said(models) == ["Hello ", "there"]


FAILURES: list[Any] = [
    pytest.param(Fails(429, headers=AT_ONCE), ModelRateLimited, {}, 3, id="429"),
    pytest.param(Fails(429, code="insufficient_quota"), ModelRefused, {"provider_status": "429"}, 1, id="quota"),
    pytest.param(Fails(500, headers=AT_ONCE), ModelUnavailable, {}, 3, id="500"),
    pytest.param(Fails(503, headers=AT_ONCE), ModelUnavailable, {}, 3, id="503"),
    pytest.param(Fails(401), ModelRefused, {"provider_status": "401"}, 1, id="401"),
    pytest.param(Fails(403), ModelRefused, {"provider_status": "403"}, 1, id="403"),
    pytest.param(Fails(402), ModelRefused, {"provider_status": "402"}, 1, id="402"),
    pytest.param(
        Fails(400, code="content_filter"), ModelRefused, {"provider_status": "content_filter"}, 1, id="filtered prompt"
    ),
    pytest.param(Refuses(), ModelRefused, {"provider_status": "refusal"}, 1, id="refusal"),
    pytest.param(
        Says(["no"], finish_reason="content_filter"),
        ModelRefused,
        {"provider_status": "content_filter"},
        1,
        id="filtered",
    ),
    pytest.param(CutsOff(), ModelUnavailable, {}, 3, id="cut"),
    pytest.param(Garbage(), ModelMalformed, {}, 2, id="html"),
    pytest.param(Garbage("{", content_type="application/json"), ModelMalformed, {}, 2, id="broken json"),
    pytest.param(Garbage("[]", content_type="application/json"), ModelMalformed, {}, 2, id="other json"),
    pytest.param(Garbage('{"choices": null}', content_type="application/json"), ModelMalformed, {}, 2, id="null"),
    pytest.param(Garbage('{"choices": []}', content_type="application/json"), ModelMalformed, {}, 2, id="no choice"),
]


@pytest.mark.parametrize(("reply", "error", "metadata", "calls"), FAILURES)
async def test_a_form_that_fails_ends_with_its_reason(
    server: ModelServer,
    endpoint: Endpoint,
    reply: Reply,
    error: type[ServiceError],
    metadata: dict[str, str],
    calls: int,
) -> None:
    server.chat.by(lambda _: reply)
    async with endpoint() as models:
        with pytest.raises(error) as ended:
            await models.question.plan(QUESTION)
    assert ended.value.metadata == metadata
    assert len(server.chat.requests) == calls
    assert "own words" not in str(ended.value) and KEY not in str(ended.value)


ANSWER_FAILURES: list[Any] = [
    *(failure for failure in FAILURES if failure.id != "filtered"),
    pytest.param(Fails(404), ModelRefused, {"provider_status": "404"}, 1, id="404"),
    pytest.param(Garbage("{", in_stream=True), ModelMalformed, {}, 2, id="broken event"),
    pytest.param(Garbage('{"choices": [{}]}', in_stream=True), ModelMalformed, {}, 2, id="wrong event"),
    pytest.param(Says([]), ModelMalformed, {}, 2, id="nothing said"),
    pytest.param(Calls("search", '{"query": "half'), ModelMalformed, {}, 2, id="half a call"),
    pytest.param(Says([], finish_reason=None), ModelUnavailable, {}, 3, id="no end"),
    pytest.param(FailsInStream(code="429"), ModelRateLimited, {}, 3, id="429 in a stream"),
]


@pytest.mark.parametrize(("reply", "error", "metadata", "calls"), ANSWER_FAILURES)
async def test_an_answer_that_fails_ends_with_its_reason(
    server: ModelServer,
    endpoint: Endpoint,
    reply: Reply,
    error: type[ServiceError],
    metadata: dict[str, str],
    calls: int,
) -> None:
    server.chat.by(lambda _: reply)
    async with endpoint() as models:
        with pytest.raises(error) as ended:
            await said(models)
    assert ended.value.metadata == metadata
    assert len(server.chat.requests) == calls


BROKEN_OFF: list[Any] = [
    pytest.param(CutsOff(["So "]), ModelUnavailable, id="cut"),
    pytest.param(FailsInStream(["So "]), ModelUnavailable, id="error"),
    pytest.param(Says(["So "], finish_reason=None), ModelUnavailable, id="no end"),
    pytest.param(Says(["So "], finish_reason="content_filter"), ModelRefused, id="filtered"),
]


@pytest.mark.parametrize(("reply", "error"), BROKEN_OFF)
async def test_an_answer_that_was_begun_is_never_asked_for_again(
    server: ModelServer, endpoint: Endpoint, reply: Reply, error: type[ServiceError]
) -> None:
    server.chat.in_order(reply, Says(["anew"]))
    told = []
    async with endpoint() as models:
        with pytest.raises(error):
            async for piece in pieces(models):
                told.append(piece)
    assert told == ["So "]
    assert len(server.chat.requests) == 1


@pytest.mark.parametrize(
    "headers", [{"retry-after": "120"}, {"retry-after-ms": "120000"}, {"retry-after": "nan"}], ids=str
)
async def test_a_wait_past_the_calls_limit_is_told_instead(
    server: ModelServer, endpoint: Endpoint, headers: dict[str, str]
) -> None:
    server.chat.by(lambda _: Fails(429, headers=headers))
    began = time.monotonic()
    async with endpoint(classify_limit_s=3.0) as models:
        with pytest.raises(ModelRateLimited) as limited:
            await models.question.plan(QUESTION)
    if headers != {"retry-after": "nan"}:
        assert limited.value.retry_after_s == 120
        assert len(server.chat.requests) == 1
    assert time.monotonic() - began < 3


async def test_the_providers_wait_is_kept(server: ModelServer, endpoint: Endpoint) -> None:
    server.chat.in_order(Fails(429, headers={"retry-after-ms": "400"}), Writes(PLAN))
    began = time.monotonic()
    async with endpoint() as models:
        await models.question.plan(QUESTION)
    assert time.monotonic() - began >= 0.4


async def test_an_endpoint_that_cannot_be_reached_is_unavailable(endpoint: Endpoint) -> None:
    async with endpoint(base_url="http://127.0.0.1:1/v1") as models:
        with pytest.raises(ModelUnavailable):
            await models.question.plan(QUESTION)
