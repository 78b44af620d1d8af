"""The answering model over HTTP."""

import asyncio

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage

from services.agent.errors import ModelRefused
from tests.integration.models.endpoint.asking import (
    Endpoint,
    said,
)
from tests.model_server.replies import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Calls,
    Fails,
    Says,
)
from tests.model_server.server import ModelServer


async def test_a_tool_call_in_fragments_comes_whole_and_its_usage_once(server: ModelServer, endpoint: Endpoint) -> None:
    server.chat.in_order(Calls("search", {"query": "长度 \U0001f332"}, fragments=9, before="One moment. "))
    async with endpoint() as models:
        chunks = [chunk async for chunk in models.answering.astream([HumanMessage("Hello")])]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert isinstance(whole, AIMessageChunk)
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("search", {"query": "长度 \U0001f332"})]
    assert [bool(chunk.tool_call_chunks) for chunk in chunks].count(True) == 1
    assert whole.text == "One moment. "
    usage = whole.usage_metadata
    assert usage is not None and (usage["input_tokens"], usage["output_tokens"]) == (INPUT_TOKENS, OUTPUT_TOKENS)


async def test_a_tool_call_without_index_and_id_is_a_tool_call(server: ModelServer, endpoint: Endpoint) -> None:
    server.chat.in_order(Calls("search", {"query": "length"}, bare=True))
    async with endpoint() as models:
        chunks = [chunk async for chunk in models.answering.astream([HumanMessage("Hello")])]
    [call] = [call for chunk in chunks for call in chunk.tool_calls]
    assert (call["name"], call["args"]) == ("search", {"query": "length"}) and call["id"]


async def test_an_endpoint_that_refuses_to_report_usage_is_not_asked_for_it_again(
    server: ModelServer, endpoint: Endpoint
) -> None:
    server.chat.by(lambda request: Fails(400) if "stream_options" in request.body else Says(["Hello"]))
    async with endpoint() as models:
        assert await said(models) == await said(models) == ["Hello"]
    assert ["stream_options" in request.body for request in server.chat.requests] == [True, False, False]


async def test_a_request_that_is_refused_either_way_changes_nothing_for_the_next(
    server: ModelServer, endpoint: Endpoint
) -> None:
    server.chat.in_order(Fails(400), Fails(400), Says(["Hello"]))
    async with endpoint() as models:
        with pytest.raises(ModelRefused):
            await said(models)
        assert await said(models) == ["Hello"]
    assert "stream_options" in server.chat.requests[-1].body


async def test_without_a_key_none_is_looked_for(
    server: ModelServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-someone-elses")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    server.chat.in_order(Says(["Hello"]))
    async with endpoint(api_key=None) as models:
        assert await said(models) == ["Hello"]
    assert "someone" not in server.chat.requests[0].headers["authorization"]


async def test_many_answers_at_once_do_not_mix(server: ModelServer, endpoint: Endpoint) -> None:
    server.chat.by(lambda request: Says([request.body["messages"][-1]["content"]] * 5))
    async with endpoint() as models:

        async def answer(number: int) -> set[str]:
            return {
                str(chunk.text) async for chunk in models.answering.astream([HumanMessage(str(number))]) if chunk.text
            }

        answers = await asyncio.gather(*map(answer, range(40)))
    assert answers == [{str(number)} for number in range(40)]
