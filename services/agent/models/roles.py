"""Which model plays which role."""

from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel

from services.agent.models.base import GradeModel, QuestionModel
from services.agent.models.extractive import ExtractiveChatModel, ExtractiveGradeModel, ExtractiveQuestionModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """`answering` is the only one whose words a user ever reads."""

    answering: BaseChatModel
    question: QuestionModel
    grade: GradeModel


def built_in_models() -> Models:
    """The built-in extractive model in all three roles."""
    return Models(answering=ExtractiveChatModel(), question=ExtractiveQuestionModel(), grade=ExtractiveGradeModel())
