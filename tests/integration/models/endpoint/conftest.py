"""A scripted endpoint, and the models at it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from pydantic import SecretStr

from services.agent.models.openai_compatible import EndpointModels, EndpointSettings, open_endpoint
from tests.integration.models.endpoint.asking import KEY, Endpoint
from tests.model_server.server import ModelServer, model_server


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as scripted:
        yield scripted


@pytest.fixture
def endpoint(server: ModelServer) -> Endpoint:
    def opened(**changed: Any) -> AbstractAsyncContextManager[EndpointModels]:
        settings: dict[str, Any] = {
            "base_url": server.base_url,
            "api_key": SecretStr(KEY),
            "model": "large",
            "fast_model": "fast",
            "grade_model": "judge",
            "classify_limit_s": 10.0,
            "grade_limit_s": 10.0,
            "rewrite_limit_s": 10.0,
            "first_token_limit_s": 10.0,
        }
        return open_endpoint(EndpointSettings(**{**settings, **changed}))

    return opened
