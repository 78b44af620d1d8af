"""The forms that models write in: what is asked of them, and how it is read."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from services.agent.schemas import MAX_SUB_QUESTIONS
from services.agent.texts import MAX_OPTIONS, MAX_TEXT_BYTES, clean, cut

Form = TypeVar("Form", bound=BaseModel)

_MAX_REASON_BYTES = 2_048
_MAX_SLOTS = 20
# Places where an object may begin; a reply with more of them is looked through no further.
_MAX_BEGINNINGS = 20
_END_OF_THOUGHT = "</think>"


def _shortened(text: str) -> str:
    return cut(clean(text).strip(), at_most=_MAX_REASON_BYTES)


def _text(text: str) -> str:
    return cut(clean(text).strip(), at_most=MAX_TEXT_BYTES)


def _texts(texts: list[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


_Folded = BeforeValidator(lambda value: value.strip().lower() if isinstance(value, str) else value)
_AbsentText = BeforeValidator(lambda value: "" if value is None else value)
_AbsentTexts = BeforeValidator(lambda value: [] if value is None else value)
Text = Annotated[str, _AbsentText, AfterValidator(_text)]
Reason = Annotated[str, _AbsentText, AfterValidator(_shortened)]
Texts = Annotated[list[Text], _AbsentTexts, AfterValidator(_texts)]


class WrittenPlan(BaseModel):
    """Whether the question is one or several."""

    complexity: Annotated[Literal["simple", "complex"], _Folded]
    reason: Reason = Field(default="", description="One short sentence.")
    sub_questions: Annotated[Texts, AfterValidator(lambda parts: parts[:MAX_SUB_QUESTIONS])] = Field(
        default_factory=list, description="Of a complex question: two to four, each whole by itself. Otherwise empty."
    )


class WrittenGrade(BaseModel):
    """What the evidence is worth for the question."""

    relevance: Annotated[Literal["none", "weak", "strong"], _Folded]
    answerability: Annotated[Literal["none", "partial", "sufficient"], _Folded]
    ambiguity: Annotated[Literal["none", "missing_slot", "multiple_candidates"], _Folded]
    route: Annotated[Literal["answer", "rewrite", "clarify", "scope_select", "no_knowledge"], _Folded]
    confidence: float = Field(description="From 0 to 1.")
    reason: Reason = Field(default="", description="One short sentence.")
    prompt: Text = Field(default="", description="What to ask the user, in the question's language; empty if nothing.")
    options: Annotated[Texts, AfterValidator(lambda options: options[:MAX_OPTIONS])] = Field(
        default_factory=list, description="What the user may choose from, as the evidence names it."
    )
    missing_slots: Annotated[Texts, AfterValidator(lambda slots: slots[:_MAX_SLOTS])] = Field(
        default_factory=list, description="The conditions that are missing, a word or two each."
    )

    @model_validator(mode="after")
    def _asks_what_can_be_answered(self) -> Self:
        if not 0 <= self.confidence <= 1:
            raise ValueError("confidence must be from 0 to 1")
        if self.ambiguity != "none" and not self.prompt:
            raise ValueError("prompt must be set where ambiguity is not none")
        if self.ambiguity == "multiple_candidates" and len(self.options) < 2:
            raise ValueError("options must name at least two where ambiguity is multiple_candidates")
        return self


class WrittenRewrite(BaseModel):
    """A better query."""

    method: Annotated[Literal["step_back", "hyde"], _Folded]
    rewritten_query: Text = Field(description="What to search for.")
    step_back_question: Text = Field(default="", description="Of step_back: the more general question.")
    hyde_document: Text = Field(default="", description="Of hyde: the passage that would answer.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.rewritten_query:
            raise ValueError("rewritten_query must be set")
        by_method = self.step_back_question if self.method == "step_back" else self.hyde_document
        if not by_method:
            raise ValueError("step_back_question must be set for step_back, hyde_document for hyde")
        return self


def json_schema(form: type[BaseModel]) -> dict[str, Any]:
    """The form as strict endpoints take it: each field required, no other allowed, and no defaults."""
    schema = form.model_json_schema()
    properties = {
        name: {key: value for key, value in field.items() if key not in ("title", "default")}
        for name, field in schema["properties"].items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class Unreadable(Exception):
    """What was written is not of the form; `why` says so to the model, and quotes nothing."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def read(form: type[Form], written: str | dict[str, Any]) -> Form:
    """Reads an object, or a text that holds one, whatever stands around it; raises Unreadable."""
    try:
        return form.model_validate(_object_in(written) if isinstance(written, str) else written)
    except ValidationError as error:
        raise Unreadable("; ".join(_complaints(error))) from None


def _object_in(text: str) -> dict[str, Any]:
    text = text.rpartition(_END_OF_THOUGHT)[2]
    decoder = json.JSONDecoder()
    place = text.find("{")
    for _ in range(_MAX_BEGINNINGS):
        if place < 0:
            break
        try:
            found, _ = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place = text.find("{", place + 1)
            continue
        if isinstance(found, dict):
            return found
    raise Unreadable("there must be one JSON object and nothing else")


def _complaints(error: ValidationError) -> Iterator[str]:
    for wrong in error.errors(include_url=False, include_input=False):
        place = ".".join(map(str, wrong["loc"]))
        yield f"{place}: {wrong['msg']}" if place else wrong["msg"]
