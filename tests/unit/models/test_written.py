"""How an object is read from what a model wrote."""

from typing import Any

import pytest
from pydantic import BaseModel

from services.agent.models.openai_compatible.written import (
    Unreadable,
    WrittenGrade,
    WrittenPlan,
    WrittenRewrite,
    json_schema,
    read,
)

OBJECT = '{"complexity": "Simple ", "reason": null, "sub_questions": null, "extra": 1}'


@pytest.mark.parametrize(
    "text",
    [
        OBJECT,
        f"```json\n{OBJECT}\n```",
        f"Here you are: {OBJECT} I hope that it helps.",
        f"<think>{{not it}} {{}}</think>{OBJECT}",
        f"{{broken {OBJECT}",
    ],
)
def test_an_object_is_found_whatever_stands_around_it(text: str) -> None:
    plan = read(WrittenPlan, text)
    assert (plan.complexity, plan.reason, plan.sub_questions) == ("simple", "", [])


@pytest.mark.parametrize("text", ["", "[]", "null", "{" * 100_000, '{"a":' * 100_000, "{}", '{"complexity": "both"}'])
def test_what_is_no_such_object_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read(WrittenPlan, text)


def test_what_was_wrong_is_told_without_quoting_it() -> None:
    with pytest.raises(Unreadable) as unreadable:
        read(WrittenPlan, {"complexity": "SECRET", "sub_questions": "SECRET"})
    assert "complexity" in unreadable.value.why and "SECRET" not in unreadable.value.why


def test_texts_are_cleaned_and_kept_within_their_limits() -> None:
    plan = read(
        WrittenPlan,
        {
            "complexity": "complex",
            "reason": "r" * 10_000,
            "sub_questions": ["a\0\ud800", "a", " ", *"bcdefg"],
        },
    )
    assert plan.sub_questions == ["a", "b", "c", "d"]
    assert len(plan.reason) == 2_048


GRADE: dict[str, Any] = {
    "relevance": "strong",
    "answerability": "sufficient",
    "ambiguity": "missing_slot",
    "route": "clarify",
    "confidence": 1,
    "prompt": "Which version?",
}


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": " "},
        {"ambiguity": "multiple_candidates", "options": ["one"]},
        {"confidence": 1.1},
        {"confidence": float("nan")},
        {"relevance": None},
    ],
    ids=str,
)
def test_a_grade_that_contradicts_itself_is_unreadable(changed: dict[str, Any]) -> None:
    read(WrittenGrade, GRADE)
    with pytest.raises(Unreadable):
        read(WrittenGrade, {**GRADE, **changed})


@pytest.mark.parametrize(
    "written",
    [
        {"method": "step_back", "rewritten_query": "q", "hyde_document": "d"},
        {"method": "hyde", "rewritten_query": "q", "step_back_question": "s"},
        {"method": "hyde", "rewritten_query": " ", "hyde_document": "d"},
    ],
)
def test_a_rewrite_has_a_query_and_what_its_method_names(written: dict[str, str]) -> None:
    with pytest.raises(Unreadable):
        read(WrittenRewrite, written)


@pytest.mark.parametrize("form", [WrittenPlan, WrittenGrade, WrittenRewrite])
def test_the_schema_is_one_that_strict_endpoints_take(form: type[BaseModel]) -> None:
    schema = json_schema(form)
    assert set(schema["required"]) == set(schema["properties"]) == set(form.model_fields)
    assert schema["additionalProperties"] is False
    allowed = {"type", "enum", "description", "items"}
    for field in schema["properties"].values():
        assert field.keys() <= allowed and field["type"] in ("string", "number", "array")
