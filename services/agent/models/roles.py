"""Which model plays which role."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel

from services.agent.models.base import GradeModel, QuestionModel
from services.agent.models.extractive import ExtractiveChatModel, ExtractiveGradeModel, ExtractiveQuestionModel
from services.agent.settings import AgentSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """`answering` is the only one whose words a user ever reads."""

    answering: BaseChatModel
    question: QuestionModel
    grade: GradeModel


def built_in_models() -> Models:
    """The built-in extractive model in all three roles."""
    return Models(answering=ExtractiveChatModel(), question=ExtractiveQuestionModel(), grade=ExtractiveGradeModel())


@asynccontextmanager
async def open_models(settings: AgentSettings) -> AsyncIterator[Models]:
    """The models that the settings name, or the built-in ones where they name none; nothing is called."""
    if settings.model is None or settings.openai_base_url is None:
        yield built_in_models()
        return
    # Its client library takes a second or two to load, which those who do without it are spared.
    from services.agent.models.openai_compatible import EndpointSettings, open_endpoint

    endpoint = EndpointSettings(
        base_url=settings.openai_base_url,
        api_key=settings.openai_api_key,
        model=settings.model,
        fast_model=settings.fast_model or settings.model,
        grade_model=settings.grade_model or settings.model,
        classify_limit_s=settings.classify_timeout_s,
        grade_limit_s=settings.grade_timeout_s,
        rewrite_limit_s=settings.rewrite_timeout_s,
        first_token_limit_s=settings.first_token_timeout_s,
    )
    async with open_endpoint(endpoint) as models:
        yield Models(answering=models.answering, question=models.question, grade=models.grade)
