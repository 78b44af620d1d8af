"""The models of one OpenAI-compatible endpoint, over one pool of connections."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout
from pydantic import SecretStr

from services.agent.models.openai_compatible.chat import AnsweringChatModel
from services.agent.models.openai_compatible.grade import EndpointGradeModel
from services.agent.models.openai_compatible.question import EndpointQuestionModel
from services.agent.models.openai_compatible.structured import StructuredModel

# Local endpoints ask for no key, but the client library does; it must not look for another in the environment.
_NO_KEY = "none"
_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    base_url: str
    api_key: SecretStr | None
    model: str
    """Answers."""
    fast_model: str
    """Classes and rewrites."""
    grade_model: str
    classify_limit_s: float
    grade_limit_s: float
    rewrite_limit_s: float
    first_token_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointModels:
    answering: AnsweringChatModel
    question: EndpointQuestionModel
    grade: EndpointGradeModel


@asynccontextmanager
async def open_endpoint(settings: EndpointSettings) -> AsyncIterator[EndpointModels]:
    """Calls nothing until a model is asked; leaving it closes the connections."""
    key = (settings.api_key.get_secret_value() if settings.api_key else "") or _NO_KEY
    # Time limits are each call's own: here only whoever does not even take a connection is given up.
    async with DefaultAsyncHttpxClient(timeout=Timeout(None, connect=_CONNECT_S)) as http_client:
        client = AsyncOpenAI(
            base_url=settings.base_url,
            api_key=key,
            max_retries=0,
            timeout=Timeout(None, connect=_CONNECT_S),
            http_client=http_client,
        )

        def chat_model(name: str) -> AnsweringChatModel:
            return AnsweringChatModel(
                model=name,
                base_url=settings.base_url,
                api_key=SecretStr(key),
                # The synchronous one is never used: without it, a second pool and its certificates are not loaded.
                client=client.chat.completions,
                root_client=client,
                async_client=client.chat.completions,
                root_async_client=client,
                max_retries=0,
                use_responses_api=False,
                stream_chunk_timeout=None,
                first_token_limit_s=settings.first_token_limit_s,
            )

        models = {name: chat_model(name) for name in {settings.model, settings.fast_model, settings.grade_model}}
        structured = {name: StructuredModel(models[name]) for name in {settings.fast_model, settings.grade_model}}
        yield EndpointModels(
            answering=models[settings.model],
            question=EndpointQuestionModel(
                structured[settings.fast_model],
                classify_limit_s=settings.classify_limit_s,
                rewrite_limit_s=settings.rewrite_limit_s,
            ),
            grade=EndpointGradeModel(structured[settings.grade_model], limit_s=settings.grade_limit_s),
        )
