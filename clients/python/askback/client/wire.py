"""From plain Python values to protobuf messages."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

# Its number, or its name with or without the prefix of its enum; an empty name leaves it unset.
EnumValue = int | str

MessageT = TypeVar("MessageT", bound=Message)


def build(kind: type[MessageT], /, **values: Any) -> MessageT:
    """A message of that kind from plain values; None leaves a field unset.

    An enum's value may be its number or its name ("ENQUEUE"); a Timestamp is an aware datetime, a Duration
    a number of seconds, a Struct a mapping; a message may be a mapping of its fields. What does not fit
    raises ValueError or TypeError with the field's name.
    """
    return _build(kind, values, path="")


def _build(kind: type[MessageT], values: Mapping[str, Any], *, path: str) -> MessageT:
    fields = cast(Mapping[str, FieldDescriptor], kind.DESCRIPTOR.fields_by_name)
    converted: dict[str, Any] = {}
    for name, value in values.items():
        field = fields.get(name)
        if field is None:
            raise ValueError(f"{path}{name}: no field of {kind.DESCRIPTOR.name}, which has {', '.join(fields)}")
        if value is not None:
            converted[name] = _field_value(field, value, path=f"{path}{name}")
    try:
        return kind(**converted)
    except (TypeError, ValueError):
        # protobuf does not say which field it was.
        for name, value in converted.items():
            try:
                kind(**{name: value})
            except (TypeError, ValueError) as error:
                refusal = TypeError if isinstance(error, TypeError) else ValueError
                raise refusal(f"{path}{name}: {error}") from error
        raise


def _field_value(field: FieldDescriptor, value: Any, *, path: str) -> Any:
    if not field.is_repeated:
        return _single(field, value, path=path)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{path}: must be a list, not {type(value).__name__}")
    return [_single(field, item, path=f"{path}[{index}]") for index, item in enumerate(value)]


def _single(field: FieldDescriptor, value: Any, *, path: str) -> Any:
    if field.enum_type is not None:
        return _enum_number(field.enum_type, value, path=path)
    if field.message_type is None or isinstance(value, Message):
        return value
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise ValueError(f"{path}: must be a datetime with its time zone")
            return value
        case "google.protobuf.Duration":
            return value if isinstance(value, timedelta) else timedelta(seconds=value)
        case "google.protobuf.Struct":
            return dict(value)
        case "google.protobuf.FieldMask":
            return {"paths": list(value)}
    if not isinstance(value, Mapping):
        raise TypeError(f"{path}: must be a {field.message_type.name} or a mapping, not {type(value).__name__}")
    return _build(GetMessageClass(field.message_type), value, path=f"{path}.")


def _enum_number(enum: EnumDescriptor, value: EnumValue, *, path: str) -> int:
    if isinstance(value, int):
        return value
    if not value:
        return 0
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", enum.name).upper() + "_"
    names = {name.removeprefix(prefix): number.number for name, number in enum.values_by_name.items()}
    number = names.get(value.upper().removeprefix(prefix))
    if number is None:
        raise ValueError(f"{path}: must be one of {', '.join(names)}, not {value!r}")
    return number
