import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from services.agent.knowledge.embedding import BuiltInEncoder


@pytest.fixture(scope="module")
async def built_in() -> AsyncIterator[BuiltInEncoder]:
    encoder = BuiltInEncoder()
    yield encoder
    await encoder.close()


async def test_vectors_have_unit_length_and_the_order_of_their_texts(built_in: BuiltInEncoder) -> None:
    texts = [f"Sentence number {number}." for number in range(20)]
    together = await built_in.encode(texts)
    alone = await asyncio.gather(*(built_in.encode([text]) for text in texts))
    assert together.shape == (20, built_in.dimensions)
    assert np.linalg.norm(together, axis=1) == pytest.approx(1, abs=1e-4)
    assert together == pytest.approx(np.concatenate(alone), abs=1e-4)


async def test_chinese_and_english_of_one_meaning_are_near(built_in: BuiltInEncoder) -> None:
    question, same, other = await built_in.encode(
        ["How long is the warranty?", "保修期是多长时间？", "The gateway is mounted on a wall."]
    )
    assert question @ same > question @ other + 0.2


async def test_no_texts_give_no_vectors(built_in: BuiltInEncoder) -> None:
    assert (await built_in.encode([])).shape == (0, built_in.dimensions)


async def test_a_cancelled_call_leaves_the_encoder_usable(built_in: BuiltInEncoder) -> None:
    task = asyncio.create_task(built_in.encode(["A long text. " * 100] * 64))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await built_in.encode(["ready"])).shape == (1, built_in.dimensions)
