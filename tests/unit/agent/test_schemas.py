"""The protocols: the same as on the wire, and clean."""

from datetime import datetime
from enum import StrEnum
from typing import Any, get_args

import pytest
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from pydantic import ValidationError

from askback.rag.v1 import hitl_pb2, trace_pb2
from services.agent import schemas
from services.agent.schemas import (
    RagSubTrace,
    RagTrace,
    RetrievedChunk,
    Route,
    StrictSchema,
    normalize_rag_sub_trace,
    normalize_rag_trace,
)

MESSAGES = [
    message
    for message in (
        *trace_pb2.DESCRIPTOR.message_types_by_name.values(),
        *hitl_pb2.DESCRIPTOR.message_types_by_name.values(),
    )
    if hasattr(schemas, message.name)
]
ENUMS = [
    *trace_pb2.DESCRIPTOR.enum_types_by_name.values(),
    *hitl_pb2.DESCRIPTOR.enum_types_by_name.values(),
]
SCALARS = {
    FieldDescriptor.CPPTYPE_STRING: str,
    FieldDescriptor.CPPTYPE_INT32: int,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
    FieldDescriptor.CPPTYPE_BOOL: bool,
}


def element_of(field: FieldDescriptor) -> Any:
    if field.name == "sub_traces":
        return RagSubTrace
    if field.message_type is not None:
        return datetime if field.message_type.name == "Timestamp" else getattr(schemas, field.message_type.name)
    if field.enum_type is not None:
        return getattr(schemas, field.enum_type.name)
    return SCALARS[field.cpp_type]


def parts_of(annotation: Any) -> set[Any]:
    return set(get_args(annotation)) - {type(None)} or {annotation}


def test_every_message_of_a_trace_has_its_model() -> None:
    names = {message.name for message in MESSAGES}
    assert names >= set(trace_pb2.DESCRIPTOR.message_types_by_name)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_model_and_proto_have_the_same_fields(message: Any) -> None:
    model: type[StrictSchema] = getattr(schemas, message.name)
    assert set(model.model_fields) == {field.name for field in message.fields}
    for field in message.fields:
        declared = model.model_fields[field.name]
        assert parts_of(declared.annotation) == {element_of(field)}, field.name
        assert (getattr(declared.annotation, "__origin__", None) is list) == field.is_repeated, field.name
        # What has presence on the wire is None here where it is absent.
        if field.has_presence and not declared.is_required():
            assert declared.default is None, field.name


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.name)
def test_enum_and_proto_have_the_same_values(enum: EnumDescriptor) -> None:
    prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    assert prefix != enum.values[0].name
    model: type[StrEnum] = getattr(schemas, enum.name)
    names = [value.name.removeprefix(prefix) for value in enum.values[1:]]
    assert list(model.__members__) == names
    assert [member.value for member in model] == [name.lower() for name in names]


def test_a_sub_trace_has_all_fields_of_a_trace_but_sub_traces() -> None:
    assert set(RagTrace.model_fields) - set(RagSubTrace.model_fields) == {"sub_traces"}


def test_an_unknown_field_is_refused_by_the_schemas_themselves() -> None:
    with pytest.raises(ValidationError):
        RetrievedChunk.model_validate({"filename": "a.md", "embedding": [0.1]})


def test_unknown_keys_are_dropped_at_every_depth() -> None:
    trace = normalize_rag_trace(
        {
            "query": "q",
            "secret": 1,
            "retrieval": {"mode": "hybrid", "dsn": "postgresql://"},
            "hitl": {
                "prompt": "?",
                "resumed_from": {
                    "question": "q",
                    "route": "clarify",
                    "retrieval_status": "needs_clarification",
                    "graph": {},
                },
            },
            "retrieved_chunks": [{"filename": "a.md", "text": "t", "embedding": [1.0]}],
            "timings": [{"stage": "grade", "start_ms": 1, "note": "x"}],
        }
    )
    assert trace.retrieval is not None and trace.retrieval.mode == "hybrid"
    assert trace.hitl is not None and trace.hitl.resumed_from is not None
    assert trace.hitl.resumed_from.route is Route.CLARIFY
    assert trace.retrieved_chunks == [RetrievedChunk(filename="a.md", text="t")]
    assert trace.timings[0].stage == "grade"


@pytest.mark.parametrize(
    "name",
    [
        "retrieved_chunks",
        "initial_retrieved_chunks",
        "rewrite_retrieved_chunks",
        "hitl_targeted_retrieved_chunks",
    ],
)
def test_evidence_that_cannot_be_cited_is_dropped_and_the_rest_keeps_its_order(name: str) -> None:
    given = [
        {"filename": "b.md", "page_number": 12},
        {"filename": "  "},
        {"text": "no name"},
        "not a chunk",
        None,
        {"filename": "c.md", "score": "not a number"},
        RetrievedChunk(filename="a.md", page_number="iv"),
    ]
    chunks = getattr(normalize_rag_trace({name: given}), name)
    assert [(chunk.filename, chunk.page_number) for chunk in chunks] == [("b.md", "12"), ("a.md", "iv")]


def test_a_sub_trace_nests_one_level_deep_and_no_further() -> None:
    deepest = {"query": "3"}
    trace = normalize_rag_trace({"query": "1", "sub_traces": [{"query": "2", "sub_traces": [deepest]}]})
    assert trace.sub_traces == [RagSubTrace(query="2")]
    assert normalize_rag_sub_trace({"query": "2", "sub_traces": [deepest]}) == RagSubTrace(query="2")


def test_normalising_twice_changes_nothing() -> None:
    once = normalize_rag_trace({"query": "q", "sub_traces": [{"query": "s", "retrieved_chunks": [{"filename": "a"}]}]})
    assert normalize_rag_trace(once) == once
    assert normalize_rag_trace(once.model_dump(mode="json")) == once


@pytest.mark.parametrize(
    "trace",
    [
        {"complexity": {"sub_questions": ["1", "2", "3", "4", "5"]}},
        {"evidence": {"confidence": 1.5}},
        {"sub_traces": 5},
        {"timings": 5},
        {"timings": [{"start_ms": 1}]},
    ],
)
def test_a_declared_field_that_holds_what_it_may_not_is_refused(trace: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        normalize_rag_trace(trace)


def test_a_trace_is_freed_of_what_neither_protobuf_nor_postgresql_takes() -> None:
    unclean = "a\0b\ud800c"
    trace = {
        "query": unclean,
        "complexity": {"complexity": "complex", "reason": unclean, "sub_questions": [unclean, "d"]},
        "hitl": {"options": [unclean], "resumed_from": None},
        "retrieved_chunks": [{"filename": unclean, "text": unclean}],
        "timings": [{"stage": unclean}],
    }
    cleaned = normalize_rag_trace({**trace, "sub_traces": [trace]})
    for part in (cleaned, *cleaned.sub_traces):
        assert part.complexity is not None and part.hitl is not None
        texts = [part.query, part.complexity.reason, part.complexity.sub_questions[0], part.hitl.options[0]]
        texts += [part.retrieved_chunks[0].filename, part.retrieved_chunks[0].text, part.timings[0].stage]
        assert set(texts) == {"abc"}
