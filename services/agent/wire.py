"""Turns the agent's protocols into their protobuf twins and back, field by field, by name.

A protocol's enum value and its proto's differ by the proto's prefix alone (Route.ANSWER, ROUTE_ANSWER), and
a field that is None or empty is absent on the wire.
"""

import types
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.agent.schemas import StrictSchema

Wire = TypeVar("Wire", bound=Message)
Schema = TypeVar("Schema", bound=StrictSchema)


def to_wire(value: StrictSchema, message_type: type[Wire]) -> Wire:
    """The protobuf message with the fields of `value` that its type declares."""
    message = message_type()
    _fill(message, value)
    return message


def from_wire(message: Message, schema: type[Schema]) -> Schema:
    """The protocol that the message holds; fields that the schema does not declare are passed over.

    Raises pydantic.ValidationError where the message does not fit the schema.
    """
    return schema.model_validate(_read(message, schema))


def enum_number(value: StrEnum | None, enum: EnumDescriptor) -> Any:
    """The number of a protocol's enum value; 0 for None."""
    return 0 if value is None else enum.values_by_name[_prefix(enum) + value.name].number


def enum_name(number: int, enum: EnumDescriptor) -> str | None:
    """The protocol's name of an enum number; None for 0 and for a number that is not known here."""
    found = enum.values_by_number.get(number)
    return found.name.removeprefix(_prefix(enum)).lower() if found and number else None


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def _fill(message: Message, value: StrictSchema) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name in type(value).model_fields:
        given = getattr(value, name)
        if (field := fields.get(name)) is None or given is None or given in ("", []):
            continue
        if isinstance(given, list):
            target = getattr(message, name)
            for item in given:
                if isinstance(item, StrictSchema):
                    _fill(target.add(), item)
                else:
                    target.append(item)
        elif isinstance(given, StrictSchema):
            child = getattr(message, name)
            child.SetInParent()
            _fill(child, given)
        elif isinstance(given, datetime):
            getattr(message, name).FromDatetime(given.astimezone(UTC))
        elif isinstance(given, StrEnum):
            setattr(message, name, enum_number(given, cast(EnumDescriptor, field.enum_type)))
        else:
            setattr(message, name, given)


def _read(message: Message, schema: type[StrictSchema]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if (declared := schema.model_fields.get(field.name)) is None:
            continue
        if field.has_presence and not message.HasField(field.name):
            continue
        given = getattr(message, field.name)
        group = _group(declared.annotation)
        if field.is_repeated:
            values[field.name] = [_read(item, group) if group else item for item in given]
        elif isinstance(given, Timestamp):
            values[field.name] = given.ToDatetime(UTC)
        elif group:
            values[field.name] = _read(given, group)
        elif field.type == FieldDescriptor.TYPE_ENUM:
            if (enum_value := enum_name(given, cast(EnumDescriptor, field.enum_type))) is not None:
                values[field.name] = enum_value
        else:
            values[field.name] = given
    return values


def _group(annotation: Any) -> type[StrictSchema] | None:
    """The protocol within an annotation such as `RagTrace | None` or `list[RetrievedChunk]`."""
    if get_origin(annotation) in (list, Union, types.UnionType):
        return next((group for part in get_args(annotation) if (group := _group(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, StrictSchema) else None
