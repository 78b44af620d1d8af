import pickle
from collections.abc import Sequence

import grpc
import pytest
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from askback.client import (
    Aborted,
    AskbackError,
    Cancelled,
    DeadlineExceeded,
    FieldViolation,
    Internal,
    InvalidField,
    NotFound,
    NotImplementedByService,
    Overloaded,
    SessionNotFound,
    Unavailable,
)
from askback.client import errors as errors_module
from askback.client.status import error_from_rpc
from askback.errors.v1 import error_reason_pb2

REASONS = [
    name.removeprefix("ERROR_REASON_")
    for name in error_reason_pb2.ErrorReason.keys()
    if name != "ERROR_REASON_UNSPECIFIED"
]


def failed(
    code: grpc.StatusCode, details: Sequence[Message] = (), *, text: str = "it failed", raw: bytes | None = None
) -> grpc.aio.AioRpcError:
    packed = []
    for detail in details:
        target = any_pb2.Any()
        target.Pack(detail)
        packed.append(target)
    status = status_pb2.Status(code=code.value[0], message=text, details=packed)
    trailing = grpc.aio.Metadata(
        ("x-request-id", "abc"), ("grpc-status-details-bin", status.SerializeToString() if raw is None else raw)
    )
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details=text)


def info(reason: str, domain: str = "askback", **metadata: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_the_api_has_a_class_called_after_it(reason: str) -> None:
    error = error_from_rpc(failed(grpc.StatusCode.UNKNOWN, [info(reason)]))
    expected = {"NOT_IMPLEMENTED": "NotImplementedByService"}.get(reason, reason.title().replace("_", ""))
    assert type(error).__name__ == expected
    assert error.reason == reason


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.CANCELLED, Cancelled),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.ABORTED, Aborted),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.UNIMPLEMENTED, NotImplementedByService),
        (grpc.StatusCode.INTERNAL, Internal),
        (grpc.StatusCode.UNKNOWN, AskbackError),
    ],
)
def test_a_reason_of_a_newer_service_and_none_at_all_fall_back_to_the_code(
    code: grpc.StatusCode, kind: type[AskbackError]
) -> None:
    newer = error_from_rpc(failed(code, [info("SOMETHING_NEW")]))
    assert (type(newer), newer.reason) == (kind, "SOMETHING_NEW")
    bare = error_from_rpc(failed(code))
    assert (type(bare), bare.reason) == (kind, "")


def test_a_reason_of_another_domain_is_not_taken_for_ours() -> None:
    error = error_from_rpc(failed(grpc.StatusCode.NOT_FOUND, [info("SESSION_NOT_FOUND", "proxy.example")]))
    assert type(error) is NotFound


def test_details_come_in_any_order_and_all_are_read() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="message", description="1 to 32,768 bytes")
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1_500)
    details = [retry, error_details_pb2.BadRequest(field_violations=[violation]), info("INVALID_FIELD", run_id="r")]
    error = error_from_rpc(failed(grpc.StatusCode.INVALID_ARGUMENT, details))
    assert isinstance(error, InvalidField)
    assert error.field_violations == (FieldViolation("message", "1 to 32,768 bytes"),)
    assert (error.metadata, error.retry_after) == ({"run_id": "r"}, 1.5)


def test_details_that_do_not_parse_leave_the_status_itself() -> None:
    error = error_from_rpc(failed(grpc.StatusCode.NOT_FOUND, raw=b"\xff\xff\xff", text="gone"))
    assert (type(error), error.message) == (NotFound, "gone")


def test_a_reason_is_what_the_text_begins_with() -> None:
    assert str(error_from_rpc(failed(grpc.StatusCode.NOT_FOUND, [info("SESSION_NOT_FOUND")]))) == (
        "SESSION_NOT_FOUND: it failed"
    )
    assert str(error_from_rpc(failed(grpc.StatusCode.UNAVAILABLE))) == "UNAVAILABLE: it failed"


def test_an_error_survives_pickling() -> None:
    error = Overloaded(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", "busy", {"a": "b"}, [FieldViolation("f", "d")], 2.0
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is Overloaded
    assert vars(copy) == vars(error)


def test_a_newer_class_is_caught_as_its_family() -> None:
    assert issubclass(SessionNotFound, NotFound) and issubclass(NotFound, AskbackError)


def test_the_docstring_shows_every_class() -> None:
    tree = errors_module.__doc__ or ""
    kinds = [kind for kind in vars(errors_module).values() if isinstance(kind, type) and issubclass(kind, AskbackError)]
    assert [kind.__name__ for kind in kinds if kind.__name__ not in tree.split()] == []
