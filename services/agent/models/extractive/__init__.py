"""The built-in extractive model in its three roles. No network, no key, and the same answer every time.

It is no language model: it compares words. It finds the sentences of the evidence that cover most of a
question, says how well they do, asks back where they speak of different things, and quotes them.
"""

from services.agent.models.extractive.chat import ExtractiveChatModel
from services.agent.models.extractive.grade import ExtractiveGradeModel
from services.agent.models.extractive.plan import ExtractiveQuestionModel
from services.agent.models.extractive.terms import load_dictionary

__all__ = ["ExtractiveChatModel", "ExtractiveGradeModel", "ExtractiveQuestionModel", "load_dictionary"]
