"""How long a call may take, and that a call that is given up is closed."""

import asyncio
from contextlib import aclosing

import pytest
from langchain_core.messages import HumanMessage

from services.agent.schemas import (
    EvidenceGrade,
)
from services.runtime.errors import TimeLimit
from tests.integration.models.endpoint.asking import (
    CHUNKS,
    QUESTION,
    Endpoint,
    said,
)
from tests.model_server.replies import (
    Hangs,
    Says,
)
from tests.model_server.server import ModelServer


@pytest.mark.parametrize("work", ["plan", "rewrite", "grade"])
async def test_a_model_that_hangs_is_left_when_its_time_is_over(
    server: ModelServer, endpoint: Endpoint, work: str
) -> None:
    server.chat.by(lambda _: Hangs())
    async with endpoint(classify_limit_s=0.2, grade_limit_s=0.2, rewrite_limit_s=0.2) as models:
        with pytest.raises(TimeLimit) as late:
            match work:
                case "plan":
                    await models.question.plan(QUESTION)
                case "rewrite":
                    await models.question.rewrite(QUESTION, chunks=CHUNKS, grade=EvidenceGrade())
                case _:
                    await models.grade.grade(QUESTION, chunks=CHUNKS)
        assert late.value.metadata["limit_seconds"] == "0.2"
        await asyncio.wait_for(server.chat.requests[0].hung_up.wait(), 5)
    assert len(server.chat.requests) == 1


async def test_an_answer_must_begin_in_time_and_may_then_take_longer(server: ModelServer, endpoint: Endpoint) -> None:
    go_on = asyncio.Event()
    server.chat.in_order(Says(["So ", "slowly"], go_on=go_on), Hangs())
    async with endpoint(first_token_limit_s=0.3) as models:
        asyncio.get_running_loop().call_later(0.5, go_on.set)
        assert await said(models) == ["So ", "slowly"]
        with pytest.raises(TimeLimit) as late:
            await said(models)
    assert late.value.metadata["what"] == "the first token of the answer"


async def test_cancelling_a_call_closes_its_connection(server: ModelServer, endpoint: Endpoint) -> None:
    server.chat.in_order(Hangs(), Hangs(["So "]), Hangs(["So "]))
    loop = asyncio.get_running_loop()
    async with endpoint() as models:
        for number, call in enumerate((models.question.plan(QUESTION), said(models)), start=1):
            task = asyncio.create_task(call)
            request = await server.chat.received(number)
            task.cancel()
            cancelled_at = loop.time()
            await asyncio.wait({task})
            await asyncio.wait_for(request.hung_up.wait(), 5)
            assert request.hung_up_at is not None and request.hung_up_at - cancelled_at < 0.25
        async with aclosing(models.answering.astream([HumanMessage("Hello")])) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                if chunk.text:
                    break
        await asyncio.wait_for(server.chat.requests[2].hung_up.wait(), 0.25)
