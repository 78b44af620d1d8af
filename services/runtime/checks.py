"""The rules that a request's fields are held to; what breaks them is gathered, and told in one error."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration

from services.runtime.errors import FieldViolation, InvalidField

T = TypeVar("T")

MAX_ID_CHARACTERS = 128
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000

_MAX_VIOLATIONS = 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Checks:
    """Reads one request's fields, and gathers what is wrong with them until `done()`.

    A field that breaks its rule is given back as well as it can be, so that reading goes on and the caller
    learns of every fault at once.
    """

    def __init__(self) -> None:
        self._violations: list[FieldViolation] = []

    def refuse(self, field: str, description: str) -> None:
        if len(self._violations) < _MAX_VIOLATIONS:
            self._violations.append(FieldViolation(field, description))

    def done(self) -> None:
        """Raises InvalidField where anything was refused."""
        if self._violations:
            raise InvalidField(self._violations)

    def name(self, field: str, value: str) -> str:
        """An id that must be there."""
        if not value:
            self.refuse(field, f"must be 1 to {MAX_ID_CHARACTERS} characters")
        return self.optional_name(field, value)

    def optional_name(self, field: str, value: str) -> str:
        """An id that may be left out."""
        if len(value) > MAX_ID_CHARACTERS:
            self.refuse(field, f"must be at most {MAX_ID_CHARACTERS} characters")
        if _CONTROL.search(value):
            self.refuse(field, "must not hold control characters")
        return value

    def text(self, field: str, value: str, *, at_most: int, required: bool = False) -> str:
        """Text of at most so many UTF-8 bytes; every character but NUL is welcome."""
        if required and not value:
            self.refuse(field, f"must be 1 to {at_most:,} bytes")
        # No character takes more than four bytes: most texts need not be encoded to know that they fit.
        if len(value) * 4 > at_most and len(value.encode()) > at_most:
            self.refuse(field, f"must be at most {at_most:,} bytes")
        if "\0" in value:
            self.refuse(field, "must not hold NUL")
        return value

    def number(self, field: str, value: int, *, at_least: int, at_most: int | None = None) -> int:
        if value < at_least or (at_most is not None and value > at_most):
            self.refuse(
                field, f"must be {at_least} to {at_most}" if at_most is not None else f"must be {at_least} or more"
            )
        return value

    def choice(self, field: str, value: int, choices: Mapping[int, T], *, otherwise: T) -> T:
        """An enum's value; what is none of the choices is refused, and read as `otherwise`."""
        if value not in choices:
            self.refuse(field, "must be one of the values that the API names for it")
        return choices.get(value, otherwise)

    def page_size(self, value: int) -> int:
        if value < 0:
            self.refuse("page_size", "must be 0 (the default) or more")
        return min(value, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE

    def duration(self, field: str, value: Duration, *, at_least: timedelta, at_most: timedelta) -> timedelta:
        # Not ToTimedelta: it overflows on what a hostile caller may send.
        seconds = value.seconds + value.nanos / 1e9
        if not at_least.total_seconds() <= seconds <= at_most.total_seconds():
            self.refuse(field, f"must be {at_least.total_seconds():,g} to {at_most.total_seconds():,.15g} seconds")
            return at_most
        return timedelta(seconds=seconds)
