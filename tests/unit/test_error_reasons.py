"""Every error that a service raises is one of error_reason.proto, with the status code and keys named there."""

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from askback.errors.v1.error_reason_pb2 import ErrorReason
from services.agent import errors as agent_errors
from services.runtime import errors as runtime_errors
from services.runtime.errors import FieldViolation, ServiceError
from services.storage import errors as storage_errors
from services.storage.models import HitlState, RunStatus

PROTO = Path(__file__).parents[2] / "protos/askback/errors/v1/error_reason.proto"
PREFIX = "ERROR_REASON_"

# It passes on what storage said, and has no reason of its own.
WITHOUT_REASON = {agent_errors.StorageRefused}

SAMPLES: dict[object, Any] = {
    str: "a text",
    int: 1,
    float: 1.5,
    HitlState: HitlState.CLAIMED,
    RunStatus: RunStatus.COMPLETED,
    Sequence[FieldViolation]: [FieldViolation("a_field", "must be something else")],
}


class Documented(NamedTuple):
    """What the comment above a reason says."""

    code: str
    keys: set[str]
    retry_info: bool


def _documented() -> dict[str, Documented]:
    reasons: dict[str, Documented] = {}
    comment: list[str] = []
    for line in map(str.strip, PROTO.read_text(encoding="utf-8").splitlines()):
        if line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
            continue
        if named := re.match(rf"{PREFIX}(\w+) = [1-9]", line):
            text = " ".join(comment)
            code = re.match(r"[A-Z_]+", text)
            keys = re.search(r"Keys: ([^.]+)\.", text)
            reasons[named[1]] = Documented(
                code=code[0] if code else "",
                keys=set(keys[1].split(", ")) - {"none"} if keys else set(),
                retry_info="RetryInfo" in text,
            )
        comment = []
    return reasons


def _derived(base: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for error in base.__subclasses__():
        yield error
        yield from _derived(error)


def _errors() -> list[type[ServiceError]]:
    modules = {module.__name__ for module in (runtime_errors, storage_errors, agent_errors)}
    found = {error for error in _derived(ServiceError) if error.__module__ in modules}
    return sorted(found - WITHOUT_REASON, key=lambda error: (error.__module__, error.__name__))


def _made(error: type[ServiceError]) -> ServiceError:
    """One of it, from a sample for each thing that it is made of."""
    positional, named = [], {}
    for parameter in inspect.signature(error, eval_str=True).parameters.values():
        sample = SAMPLES[parameter.annotation]
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = sample
        else:
            positional.append(sample)
    return error(*positional, **named)


DOCUMENTED = _documented()
every_error = pytest.mark.parametrize("error", _errors(), ids=lambda error: f"{error.__module__}.{error.__name__}")


def test_every_reason_of_the_api_names_a_status_code_and_its_keys() -> None:
    assert {PREFIX + reason for reason in DOCUMENTED} == set(ErrorReason.keys()) - {f"{PREFIX}UNSPECIFIED"}
    codes = {kind.name for kind in runtime_errors.Kind}
    for reason, documented in DOCUMENTED.items():
        assert documented.code in codes, reason
        assert all(re.fullmatch(r"[a-z_]+", key) for key in documented.keys), reason


@every_error
def test_an_error_has_a_reason_of_the_api_and_the_status_code_named_there(error: type[ServiceError]) -> None:
    assert error.reason in DOCUMENTED
    assert error.kind.name == DOCUMENTED[error.reason].code


@every_error
def test_an_error_says_in_words_what_it_is(error: type[ServiceError]) -> None:
    assert str(_made(error)).strip()
    assert "\n" not in str(_made(error))


@every_error
def test_an_error_carries_the_keys_named_for_its_reason(error: type[ServiceError]) -> None:
    assert set(_made(error).metadata) == DOCUMENTED[error.reason].keys


@every_error
def test_an_error_says_when_to_retry_where_its_reason_promises_that(error: type[ServiceError]) -> None:
    assert (_made(error).retry_after_s is not None) == DOCUMENTED[error.reason].retry_info
