"""That the scripted server speaks the protocol as its clients read it."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from openai import AsyncOpenAI, RateLimitError

from tests.model_server.replies import OUTPUT_TOKENS, Fails, Hangs, Says, Writes
from tests.model_server.server import ModelServer


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as opened:
        yield opened


async def test_a_completion_is_whole_or_streamed_as_it_was_asked_for(server: ModelServer, client: AsyncOpenAI) -> None:
    server.chat.by(lambda _: Says(["Hello ", "there"]))
    whole = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert whole.choices[0].message.content == "Hello there"
    stream = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello there"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == OUTPUT_TOKENS


async def test_a_form_is_written_as_text_or_as_a_call(server: ModelServer, client: AsyncOpenAI) -> None:
    server.chat.by(lambda _: Writes({"a": 1}))
    text = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi"}], response_format={"type": "json_object"}
    )
    assert text.choices[0].message.content == '{"a": 1}'
    called = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "Hi"}],
        tools=[{"type": "function", "function": {"name": "form", "parameters": {"type": "object"}}}],
        tool_choice={"type": "function", "function": {"name": "form"}},
    )
    assert called.choices[0].message.tool_calls
    assert server.chat.asked_for == ["", "form"]


async def test_texts_are_embedded_one_by_one(server: ModelServer, client: AsyncOpenAI) -> None:
    embedded = await client.embeddings.create(model="m", input=["abba", "cab"], encoding_format="float")
    assert [item.embedding[:3] for item in embedded.data] == [[2.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
    server.embeddings.in_order(Fails(429))
    with pytest.raises(RateLimitError):
        await client.embeddings.create(model="m", input="abba")


async def test_documents_are_reranked_best_first(server: ModelServer) -> None:
    async with httpx2.AsyncClient() as http:
        reply = await http.post(
            f"{server.base_url}/rerank",
            json={"model": "m", "query": "red door", "documents": ["a wall", "a red door", "red"], "top_n": 2},
        )
    assert [result["index"] for result in reply.json()["results"]] == [1, 2]


async def test_a_client_that_hangs_up_is_noticed(server: ModelServer, client: AsyncOpenAI) -> None:
    server.chat.in_order(Hangs())
    call = asyncio.create_task(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}]))
    request = await server.chat.received(1)
    assert not request.hung_up.is_set()
    call.cancel()
    await asyncio.wait_for(request.hung_up.wait(), 1)
