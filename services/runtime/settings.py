"""What is set from outside: read once, from the environment and a `.env` file, and then frozen."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, DotEnvSettingsSource, InitSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableValue

PREFIX = "ASKBACK_"

_PLACEHOLDERS = ("your-", "replace-with-")
# Longer ones may be a secret in the wrong place.
_LONGEST_ECHO = 16
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")


class SettingsError(Exception):
    """Settings that cannot be used; one line for each."""

    def __init__(self, lines: list[str]):
        super().__init__("\n".join(lines))
        self.lines = lines


def split_address(address: str) -> tuple[str, int]:
    """The host, in brackets where it is IPv6, and the port; ValueError says what an address must be."""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise ValueError("must be host:port, with a port from 0 to 65535")
    return found["host"], int(found["port"])


def _checked_address(address: str) -> str:
    split_address(address)
    return address


Address = Annotated[str, AfterValidator(_checked_address)]


def _refused(value: object) -> object:
    if value is not None:
        raise ValueError("must be left unset: this version does not support it")
    return value


NotInThisVersion = Annotated[SecretStr | None, AfterValidator(_refused)]
"""Of a setting that would be ignored: it is refused where it is set."""

_Lowered = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


class ServiceSettings(BaseSettings):
    """What both services have. A field `name` is set by ASKBACK_NAME; a validator's ValueError says "must …"."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    log_level: Annotated[Literal["debug", "info", "warning", "error"], _Lowered] = "info"
    """The least that is logged."""
    log_format: Annotated[Literal["json", "console"], _Lowered] | None = None
    """How it is logged; not set: console on a terminal, json otherwise."""
    reflection: bool = True
    """Whether server reflection is served."""
    drain_s: float = Field(default=30, ge=0, le=3600)
    """How long calls under way may go on once the service is told to stop."""

    _placeholders: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def read(cls) -> Self:
        """From the environment, then `.env`; raises SettingsError."""
        try:
            return cls()
        except ValidationError as error:
            raise SettingsError(list(_lines_of(cls, error))) from None
        except UnreadableValue as error:
            raise SettingsError([f"a setting cannot be read: {error}"]) from None
        except UnicodeDecodeError:
            raise SettingsError([".env: must be UTF-8 text"]) from None
        except OSError as error:
            raise SettingsError([f".env: cannot be read: {error.strerror}"]) from None

    @classmethod
    def of(cls, **values: Any) -> Self:
        """From these values and the defaults alone, by field name; raises SettingsError."""
        try:
            return cls(_build_sources=((InitSettingsSource(cls, init_kwargs=values),), {}))
        except ValidationError as error:
            raise SettingsError(list(_lines_of(cls, error))) from None

    @classmethod
    def given(cls) -> set[str]:
        """The names of all ASKBACK settings in the environment and in `.env`, known here or not; once it was read."""
        in_file = DotEnvSettingsSource(cls).env_vars
        return {name.upper() for name in (*os.environ, *in_file) if name.upper().startswith(PREFIX)}

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The settings that held a placeholder, and count as not set."""
        return self._placeholders

    @model_validator(mode="wrap")
    @classmethod
    def _without_placeholders(cls, values: Any, build: Callable[[Any], Self]) -> Self:
        held = [name for name, value in values.items() if _is_placeholder(value)]
        settings = build({name: value for name, value in values.items() if name not in held})
        settings._placeholders = tuple(setting_name(name) for name in held)  # noqa: SLF001 (its own class)
        return settings


def setting_name(field: str) -> str:
    return PREFIX + field.upper()


def _is_placeholder(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower().startswith(_PLACEHOLDERS)


def _lines_of(settings: type[ServiceSettings], error: ValidationError) -> Iterator[str]:
    for wrong in error.errors(include_url=False):
        if not wrong["loc"]:
            yield _told_by_validator(wrong)
            continue
        name = str(wrong["loc"][0])
        field = settings.model_fields.get(name)
        yield f"{setting_name(name)}: {_demand(wrong, field)}{_instead_of(wrong, field)}"


def _demand(wrong: ErrorDetails, field: FieldInfo | None) -> str:
    if wrong["type"] == "missing":
        return "must be set"
    if wrong["type"] == "value_error" or field is None:
        return _told_by_validator(wrong)
    kind = _kind(field.annotation)
    if get_origin(kind) is Literal:
        return "must be one of " + ", ".join(map(str, get_args(kind)))
    if kind is bool:
        return "must be true or false"
    if kind in (int, float):
        return f"must be a {'whole ' if kind is int else ''}number{_range(field)}"
    return wrong["msg"][:1].lower() + wrong["msg"][1:]


def _told_by_validator(wrong: ErrorDetails) -> str:
    told = wrong.get("ctx", {}).get("error")
    return str(told) if told is not None else wrong["msg"]


def _kind(annotation: Any) -> Any:
    """The type itself: without Annotated, and without None."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
            continue
        alternatives = [each for each in get_args(annotation) if each is not type(None)]
        if get_origin(annotation) is Literal or len(alternatives) != 1:
            return annotation
        annotation = alternatives[0]


def _range(field: FieldInfo) -> str:
    least = most = ""
    for bound in field.metadata:
        if isinstance(bound, Ge):
            least = f"from {bound.ge}"
        elif isinstance(bound, Gt):
            least = f"above {bound.gt}"
        elif isinstance(bound, Le):
            most = f"to {bound.le}" if least else f"up to {bound.le}"
        elif isinstance(bound, Lt):
            most = f"below {bound.lt}"
    return "".join(f" {each}" for each in (least, most) if each)


def _instead_of(wrong: ErrorDetails, field: FieldInfo | None) -> str:
    """What was found, where that can be no secret."""
    kind = _kind(field.annotation) if field else None
    found = str(wrong["input"])
    if not (kind in (int, float, bool) or get_origin(kind) is Literal) or len(found) > _LONGEST_ECHO:
        return ""
    return f", not {found!r}"
