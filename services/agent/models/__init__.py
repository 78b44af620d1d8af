"""The models that the agent asks, and what it asks of them."""

from services.agent.models.base import GradedEvidence, GradeModel, QuestionModel
from services.agent.models.titles import session_title

__all__ = ["GradeModel", "GradedEvidence", "QuestionModel", "session_title"]
