"""What a request's fields may hold, field by field, and how all faults are told at once."""

import json
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct, Value

from askback.storage.v1.session_service_pb2 import ListSessionsResponse
from services.runtime.errors import InvalidField
from services.storage.rpc.checks import Checks


def _struct(fields: dict[str, Any]) -> Struct:
    struct = Struct()
    struct.update(fields)
    return struct


def _nested(shape: str, leaf: Any) -> dict[str, Any]:
    for level in reversed(shape):
        leaf = {"k": leaf} if level == "o" else [leaf]
    return {"k": leaf}


def _refused(checks: Checks) -> list[str]:
    with pytest.raises(InvalidField) as caught:
        checks.done()
    return [violation.field for violation in caught.value.violations]


def test_all_faults_of_a_request_are_told_in_one_error() -> None:
    checks = Checks()
    checks.name("user_id", "")
    checks.name("session_id", "s" * 129)
    checks.text("message", "a\0b", at_most=10)
    assert _refused(checks) == ["user_id", "session_id", "message"]


def test_a_flood_of_faults_makes_no_flood_of_an_error() -> None:
    checks = Checks()
    for place in range(10_000):
        checks.text(f"options[{place}]", "\0", at_most=10)
    assert len(_refused(checks)) == 20


@pytest.mark.parametrize("name", ["a", "a" * 128, "\N{GRINNING FACE}" * 128, "a:b/c d", "زبان\u200cها", "क्‍ष"])
def test_an_id_of_1_to_128_characters_passes(name: str) -> None:
    checks = Checks()
    assert checks.name("session_id", name) == name
    checks.done()


@pytest.mark.parametrize("name", ["", "a" * 129, "a\0", "a\nb", "\x7f", "\x85"])
def test_any_other_id_is_refused(name: str) -> None:
    checks = Checks()
    checks.name("session_id", name)
    assert set(_refused(checks)) == {"session_id"}


@pytest.mark.parametrize(
    ("text", "fits"), [("x" * 12, True), ("知" * 4, True), ("知" * 4 + "x", False), ("x" * 13, False)]
)
def test_text_is_measured_in_bytes(text: str, fits: bool) -> None:
    checks = Checks()
    checks.text("content", text, at_most=12)
    if fits:
        checks.done()
    else:
        assert _refused(checks) == ["content"]


@pytest.mark.parametrize(
    ("duration", "fits"),
    [
        (Duration(seconds=5), True),
        (Duration(seconds=600), True),
        (Duration(seconds=4, nanos=999_999_999), False),
        (Duration(seconds=600, nanos=1), False),
        (Duration(seconds=-1), False),
        (Duration(seconds=2**63 - 1, nanos=2**31 - 1), False),
    ],
)
def test_a_duration_holds_its_bounds(duration: Duration, fits: bool) -> None:
    checks = Checks()
    checks.duration("lease", duration, at_least=timedelta(seconds=5), at_most=timedelta(seconds=600))
    if fits:
        checks.done()
    else:
        assert _refused(checks) == ["lease"]


def test_integral_numbers_come_back_as_ints_where_they_are_exact() -> None:
    plain = Checks().metadata("metadata", _struct({"n": 3, "x": 0.5, "big": 2.0**53, "huge": 1e300, "neg": -7}))
    assert plain == {"n": 3, "x": 0.5, "big": 2**53, "huge": 1e300, "neg": -7}
    assert {key: type(value) for key, value in plain.items()} == {
        "n": int,
        "x": float,
        "big": int,
        "huge": float,
        "neg": int,
    }


def test_every_kind_of_value_comes_back() -> None:
    fields: dict[str, Any] = {"null": None, "yes": True, "text": "知\u200d", "list": [1, [], {"a": {}}], "object": {}}
    assert Checks().metadata("metadata", _struct(fields)) == fields


@pytest.mark.parametrize("leaf", [1, {}, [], {"k": 1}])
@pytest.mark.parametrize("shape", ["o" * 30, "l" * 45, "ol" * 18])
def test_metadata_that_is_taken_can_be_read_back_by_any_client(shape: str, leaf: Any) -> None:
    for depth in range(len(shape) + 8):
        shape_here = (shape * 2)[:depth]
        checks = Checks()
        struct = _struct(_nested(shape_here, leaf))
        checks.metadata("metadata", struct)
        try:
            checks.done()
        except InvalidField:
            assert depth >= 31
            return
        reply = ListSessionsResponse()
        reply.sessions.add().metadata.CopyFrom(struct)
        ListSessionsResponse.FromString(reply.SerializeToString())


@pytest.mark.parametrize(
    "fields",
    [
        {f"k{place}": 1 for place in range(257)},
        {"k": "x" * 32_768},
        {"k": "a\0b"},
        {"a\0b": 1},
        {"k": [{"deep": "a\0b"}]},
        {"k": float("nan")},
        {"k": float("inf")},
        _nested("o" * 40, 1),
        _nested("l" * 70, 1),
    ],
    ids=["257 keys", "32 KiB", "NUL", "NUL in a key", "NUL deep down", "NaN", "infinity", "40 objects", "70 arrays"],
)
def test_metadata_past_its_limits_is_refused_by_name(fields: dict[str, Any]) -> None:
    checks = Checks()
    checks.metadata("metadata", _struct(fields))
    assert _refused(checks) == ["metadata"]


def test_metadata_at_its_limits_passes() -> None:
    checks = Checks()
    checks.metadata("metadata", _struct({f"k{place}": 1 for place in range(256)}))
    checks.metadata("metadata", _struct({"k": "x" * (32_768 - len('{"k":""}'))}))
    checks.done()


def test_a_metadata_value_that_is_not_set_is_refused() -> None:
    checks = Checks()
    checks.metadata("metadata", Struct(fields={"k": Value()}))
    assert _refused(checks) == ["metadata"]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"a": [1, {"b": null}]}', '{ "a" : 1.0e5 }', '{"text": "\\ud83d\\ude00 é"}']
)
def test_an_extra_json_object_is_kept_byte_for_byte(text: str) -> None:
    checks = Checks()
    assert checks.json_object("extra_json", text) == text
    checks.done()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        "{",
        "null",
        '{"a": NaN}',
        '{"a": "\0"}',
        '{"a": "\\u0000"}',
        '{"a\\u0000": 1}',
        '{"a": ' + "9" * 5_000 + "}",
        '{"a":' * 65 + "1" + "}" * 65,
        '{"a":' + "[" * 20_000 + "]" * 20_000 + "}",
        json.dumps({"a": "x" * 65_536}),
    ],
)
def test_an_extra_json_that_is_no_object_within_its_limits_is_refused(text: str) -> None:
    checks = Checks()
    checks.json_object("extra_json", text)
    assert _refused(checks) == ["extra_json"]


@pytest.mark.parametrize(("asked", "given"), [(0, 100), (1, 1), (1_000, 1_000), (1_001, 1_000), (2**31 - 1, 1_000)])
def test_a_page_size_is_the_default_or_lowered(asked: int, given: int) -> None:
    checks = Checks()
    assert checks.page_size(asked) == given
    checks.done()


def test_a_negative_page_size_is_refused() -> None:
    checks = Checks()
    checks.page_size(-1)
    assert _refused(checks) == ["page_size"]


def test_an_enum_number_that_the_api_does_not_name_is_refused() -> None:
    checks = Checks()
    assert checks.choice("state", 99, {0: "any", 1: "pending"}, otherwise="any") == "any"
    assert _refused(checks) == ["state"]
