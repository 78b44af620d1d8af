"""A trace is cleaned and brought under its limit, and no chunk that can be cited is lost on the way."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from askback.rag.v1 import trace_pb2
from services.storage.rpc.trace import MAX_TRACE_BYTES, MAX_TRACE_PARTS, bounded, has_too_many_parts, normalized, scrub


def _trace(*texts: str) -> trace_pb2.RagTrace:
    chunks = [
        trace_pb2.RetrievedChunk(filename=f"{place}.md", text=text, chunk_id=str(place), score=0.5)
        for place, text in enumerate(texts)
    ]
    return trace_pb2.RagTrace(query="q", retrieved_chunks=chunks)


def test_a_trace_within_its_limit_stays_as_it_is() -> None:
    trace = _trace("short", "texts")
    assert bounded(trace) == trace


def test_a_large_trace_keeps_every_chunk_and_loses_text_alone() -> None:
    trace = _trace(*("evidence " * 2_000 for _ in range(100)))
    trace.sub_traces.add(query="sub").retrieved_chunks.add(filename="sub.md", text="deep " * 10_000)
    cut = bounded(trace)
    assert cut.ByteSize() <= MAX_TRACE_BYTES
    assert [(chunk.filename, chunk.chunk_id, chunk.score) for chunk in cut.retrieved_chunks] == [
        (chunk.filename, chunk.chunk_id, chunk.score) for chunk in trace.retrieved_chunks
    ]
    assert trace.sub_traces[0].retrieved_chunks[0].text.startswith(cut.sub_traces[0].retrieved_chunks[0].text)
    assert cut.sub_traces[0].retrieved_chunks[0].text


def test_texts_are_cut_each_by_the_same_share() -> None:
    cut = bounded(_trace("a" * 600_000, "b" * 200_000))
    first, second = (len(chunk.text) for chunk in cut.retrieved_chunks)
    assert first == pytest.approx(3 * second, rel=0.001)
    assert cut.ByteSize() > 0.99 * MAX_TRACE_BYTES


@pytest.mark.parametrize("character", ["é", "知", "\N{GRINNING FACE}"])
def test_a_cut_falls_between_characters(character: str) -> None:
    for limit in range(600, 620):
        cut = bounded(_trace(character * 500), limit=limit)
        assert set(cut.retrieved_chunks[0].text) == {character}
        assert limit - 4 <= cut.ByteSize() <= limit


def test_a_trace_large_by_its_other_texts_is_cut_there_and_keeps_the_names() -> None:
    trace = _trace("evidence")
    trace.rewrite.hyde_document = "made up " * 100_000
    trace.hitl.options.extend(["one", "two"])
    cut = bounded(trace)
    assert cut.ByteSize() <= MAX_TRACE_BYTES
    assert cut.retrieved_chunks[0].filename == "0.md"
    assert len(cut.hitl.options) == 2


def test_the_callers_trace_is_not_changed() -> None:
    trace = _trace("x" * MAX_TRACE_BYTES)
    before = trace.SerializeToString()
    bounded(normalized(trace))
    assert trace.SerializeToString() == before


def test_evidence_that_cannot_be_cited_is_dropped() -> None:
    trace = trace_pb2.RagTrace()
    for chunks in (trace.retrieved_chunks, trace.sub_traces.add().initial_retrieved_chunks):
        chunks.add(filename="", text="from nowhere")
        chunks.add(filename=" \0", text="from nowhere either")
        chunks.add(filename="a.md", text="kept")
    kept = normalized(trace)
    assert [chunk.text for chunk in kept.retrieved_chunks] == ["kept"]
    assert [chunk.text for chunk in kept.sub_traces[0].initial_retrieved_chunks] == ["kept"]


def test_sub_traces_go_one_level_deep() -> None:
    trace = trace_pb2.RagTrace()
    trace.sub_traces.add(query="kept").sub_traces.add(query="dropped")
    assert [len(part.sub_traces) for part in normalized(trace).sub_traces] == [0]


def test_unknown_fields_and_unknown_enum_values_are_dropped() -> None:
    trace = _trace("text")
    trace.retrieval_stage = 99  # type: ignore[assignment]  # as a newer caller may send it
    trace.complexity.complexity = trace_pb2.COMPLEXITY_SIMPLE
    unknown_field = b"\xf8\x7f\x01"
    kept = normalized(trace_pb2.RagTrace.FromString(trace.SerializeToString() + unknown_field))
    assert kept.retrieval_stage == trace_pb2.RETRIEVAL_STAGE_UNSPECIFIED
    assert kept.complexity.complexity == trace_pb2.COMPLEXITY_SIMPLE
    assert unknown_field not in kept.SerializeToString()


def test_nul_is_dropped_from_every_text_and_nothing_else_is() -> None:
    family = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    trace = _trace(f"a\0b{family}")
    trace.hitl.options.extend(["\0one", "two\0"])
    kept = normalized(trace)
    assert kept.retrieved_chunks[0].text == f"ab{family}"
    assert list(kept.hitl.options) == ["one", "two"]


def test_parts_are_counted_wherever_they_are() -> None:
    trace = trace_pb2.RagTrace()
    trace.retrieved_chunks.extend([trace_pb2.RetrievedChunk()] * (MAX_TRACE_PARTS - 3))
    trace.hitl.options.append("one")
    trace.sub_traces.add().hitl.missing_slots.append("two")
    assert not has_too_many_parts(trace)
    trace.sub_traces[0].timings.add()
    assert has_too_many_parts(trace)


def test_a_flood_of_parts_is_told_by_its_number() -> None:
    assert has_too_many_parts(trace_pb2.RagTrace(sub_traces=[trace_pb2.RagTrace()] * 500_000))


def _dirty(kind: type[Any], *, depth: int = 2) -> Iterator[Any]:
    """Messages of the kind that are clean but for one place, for each place that there is."""
    for field in kind.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            value: str | int = "a\0b"
        elif field.type == FieldDescriptor.TYPE_ENUM:
            value = 99
        elif field.type == FieldDescriptor.TYPE_MESSAGE and depth:
            part = GetMessageClass(field.message_type)
            for dirty in _dirty(part, depth=depth - 1):
                yield kind(**{field.name: [part(), dirty] if field.is_repeated else dirty})
            continue
        else:
            continue
        yield kind(**{field.name: [value] if field.is_repeated else value})


def test_what_is_to_be_dropped_is_found_wherever_it_is() -> None:
    places = list(_dirty(trace_pb2.RagTrace))
    assert len(places) > 50
    for trace in places:
        for chunk in (*trace.retrieved_chunks, *(c for sub in trace.sub_traces for c in sub.retrieved_chunks)):
            chunk.filename = chunk.filename or "a.md"
        scrubbed = trace_pb2.RagTrace()
        scrubbed.CopyFrom(trace)
        scrub(scrubbed)
        assert scrubbed != trace
        kept = normalized(trace).SerializeToString()
        assert b"\0b" not in kept
        assert normalized(trace) == normalized(scrubbed)
