import json

import pytest

from services.storage.metadata_size import metadata_bytes


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, "{}"),
        ({"a": "é", "b": [1, True, None]}, '{"a":"é","b":[1,true,null]}'),
        ({"a": 1.5, "b": -2}, '{"a":1.5,"b":-2}'),
        ({"a": 1e22}, '{"a":10000000000000000000000}'),
        ({"a": [1e-5, {"b": 2.5e-7}]}, '{"a":[0.00001,{"b":0.00000025}]}'),
        ({"e": "1e-300"}, '{"e":"1e-300"}'),
    ],
)
def test_numbers_count_as_they_are_written_out(metadata: dict[str, object], expected: str) -> None:
    assert metadata_bytes(metadata) == len(expected.encode())


def test_the_smallest_number_counts_for_all_of_its_digits() -> None:
    assert metadata_bytes({"a": 5e-324}) == len('{"a":}') + 326


def test_what_is_read_back_counts_as_what_was_written() -> None:
    """Integral numbers come back from PostgreSQL as integers."""
    written = {"a": 1e22, "b": 1e300, "c": [1.5e17]}
    read = json.loads(json.dumps({"a": 10**22, "b": int(float("1e300")), "c": [15 * 10**16]}))
    assert abs(metadata_bytes(written) - metadata_bytes(read)) <= 1
