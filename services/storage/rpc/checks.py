"""The rules for what a caller keeps here as JSON, and for times, beside those of every service."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from services.runtime import checks
from services.storage.metadata_size import metadata_bytes
from services.storage.models import METADATA_MAX_BYTES, METADATA_MAX_KEYS

MAX_JSON_LEVELS = 64
MAX_EXTRA_JSON_BYTES = 64 * 1_024

# Protobuf readers take 100 messages inside one another, by default and in Python for good. An object in a
# Struct costs three of them and an array two; the reply and the session around the metadata cost the rest.
_MAX_STRUCT_MESSAGES = 96
_STRUCT_LIMIT = f"may nest {MAX_JSON_LEVELS} levels at most, and {_MAX_STRUCT_MESSAGES // 3} of objects alone"

# No JSON grows by more on the wire ("1," becomes eleven bytes): what is larger still need not be walked through.
_LARGEST_AS_WIRE = 8

_EXACT_INTEGERS = 2.0**53

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_SECONDS = range(
    (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _SECOND, (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _SECOND + 1
)
_NANOS = range(1_000_000_000)
# The very first and the very last there are stand for infinity in the database's driver.
_FIRST = datetime.min.replace(tzinfo=UTC, microsecond=1)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(microseconds=1)


class Checks(checks.Checks):
    """Gathers what is wrong with a request's fields; adds times, metadata and JSON objects."""

    def time(self, field: str, value: Timestamp) -> datetime:
        """A moment of the years 1 to 9999, to the microsecond."""
        # Not ToDatetime: it raises on what a hostile caller may send.
        if value.seconds not in _SECONDS or value.nanos not in _NANOS:
            self.refuse(field, "must be a time of the years 1 to 9999, with 0 to 999,999,999 nanos")
            return _EPOCH
        moment = _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
        return min(max(moment, _FIRST), _LAST)

    def metadata(self, field: str, value: Struct) -> dict[str, Any]:
        """A caller's own keys as plain JSON.

        A Struct's numbers are IEEE doubles: what is integral and exact comes back as an int, all else as a
        float.
        """
        if value.ByteSize() > _LARGEST_AS_WIRE * METADATA_MAX_BYTES:
            self.refuse(field, f"must be at most {METADATA_MAX_BYTES:,} bytes as JSON")
            return {}
        if len(value.fields) > METADATA_MAX_KEYS:
            self.refuse(field, f"must be at most {METADATA_MAX_KEYS} keys")
            return {}
        try:
            plain = _plain_object(value, level=1, messages=0)
        except _NotPlain as fault:
            self.refuse(field, fault.description)
            return {}
        if metadata_bytes(plain) > METADATA_MAX_BYTES:
            self.refuse(field, f"must be at most {METADATA_MAX_BYTES:,} bytes as JSON")
        return plain

    def json_object(self, field: str, value: str) -> str:
        """The text of a JSON object, given back as it came; empty means none."""
        if not value:
            return value
        if len(value.encode()) > MAX_EXTRA_JSON_BYTES:
            self.refuse(field, f"must be at most {MAX_EXTRA_JSON_BYTES:,} bytes")
            return value
        try:
            parsed = json.loads(value, parse_constant=_refuse_constant)
            if not isinstance(parsed, dict):
                raise _NotPlain("must be a JSON object")
            _check_parsed(parsed, level=1)
        except _NotPlain as fault:
            self.refuse(field, fault.description)
        except RecursionError:
            self.refuse(field, f"may nest {MAX_JSON_LEVELS} levels at most")
        except ValueError:
            self.refuse(field, "must be a JSON object")
        return value


class _NotPlain(Exception):
    def __init__(self, description: str):
        super().__init__(description)
        self.description = description


def _plain_object(struct: Struct, *, level: int, messages: int) -> dict[str, Any]:
    _check_depth(level, messages)
    for key in struct.fields:
        _check_string(key)
    return {key: _plain(value, level=level, messages=messages + 2) for key, value in struct.fields.items()}


def _plain_array(array: ListValue, *, level: int, messages: int) -> list[Any]:
    _check_depth(level, messages)
    return [_plain(value, level=level, messages=messages + 1) for value in array.values]


def _plain(value: Value, *, level: int, messages: int) -> Any:
    match value.WhichOneof("kind"):
        case "null_value":
            return None
        case "bool_value":
            return value.bool_value
        case "string_value":
            return _check_string(value.string_value)
        case "number_value":
            return _plain_number(value.number_value)
        case "struct_value":
            return _plain_object(value.struct_value, level=level + 1, messages=messages + 1)
        case "list_value":
            return _plain_array(value.list_value, level=level + 1, messages=messages + 1)
        case _:
            raise _NotPlain("must have a value, or null, for each key")


def _plain_number(number: float) -> int | float:
    if not abs(number) < float("inf"):
        raise _NotPlain("must hold finite numbers alone")
    return int(number) if number.is_integer() and abs(number) <= _EXACT_INTEGERS else number


def _check_depth(level: int, messages: int) -> None:
    if level > MAX_JSON_LEVELS or messages > _MAX_STRUCT_MESSAGES:
        raise _NotPlain(_STRUCT_LIMIT)


def _check_string(text: str) -> str:
    if "\0" in text:
        raise _NotPlain("must not hold NUL")
    return text


def _check_parsed(parsed: Any, *, level: int) -> None:
    if isinstance(parsed, str):
        _check_string(parsed)
    elif isinstance(parsed, dict | list):
        if level > MAX_JSON_LEVELS:
            raise _NotPlain(f"may nest {MAX_JSON_LEVELS} levels at most")
        for item in parsed.values() if isinstance(parsed, dict) else parsed:
            _check_parsed(item, level=level + 1)
        for key in parsed if isinstance(parsed, dict) else ():
            _check_string(key)


def _refuse_constant(constant: str) -> None:
    raise _NotPlain("must be a JSON object: NaN and Infinity are none of JSON")
