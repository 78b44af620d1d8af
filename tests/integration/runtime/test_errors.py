import asyncio
import inspect
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from structlog.contextvars import merge_contextvars

from services.runtime import errors
from services.runtime.errors import (
    FieldViolation,
    Internal,
    InvalidField,
    InvalidPageToken,
    Kind,
    NotImplementedYet,
    ServiceError,
    ShuttingDown,
    TimeLimit,
    TooLarge,
)

TABLE = [
    (InvalidField.of("user_id", "must be set"), grpc.StatusCode.INVALID_ARGUMENT, {}),
    (InvalidPageToken(), grpc.StatusCode.INVALID_ARGUMENT, {}),
    (NotImplementedYet("WatchRun"), grpc.StatusCode.UNIMPLEMENTED, {"feature": "WatchRun"}),
    (TooLarge("a document", limit=9, actual=10), grpc.StatusCode.RESOURCE_EXHAUSTED, {"limit": "9", "actual": "10"}),
    (TimeLimit("Chat", limit_s=2.5), grpc.StatusCode.DEADLINE_EXCEEDED, {"what": "Chat", "limit_seconds": "2.5"}),
    (ShuttingDown(), grpc.StatusCode.UNAVAILABLE, {}),
    (Internal("r-1"), grpc.StatusCode.INTERNAL, {"request_id": "r-1"}),
]
SECRET = "postgresql://root:hunter2@db/askback"


def details_of(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    trailing = {key: value for key, value in error.trailing_metadata()}
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    return status


def part(status: status_pb2.Status, kind: Any) -> Any:
    found = kind()
    for detail in status.details:
        if detail.Is(kind.DESCRIPTOR):
            detail.Unpack(found)
            return found
    return None


def info_of(error: grpc.aio.AioRpcError) -> Any:
    return part(details_of(error), error_details_pb2.ErrorInfo)


def raising(error: BaseException) -> dict[str, Any]:
    """A handler of every kind and style that raises it, streams after one message."""

    async def returning(request: Any, context: Any) -> StringValue:
        raise error

    async def writing(request: Any, context: Any) -> None:
        await context.write(StringValue(value="first"))
        raise error

    async def yielding(request: Any, context: Any) -> Any:
        yield StringValue(value="first")
        raise error

    return {
        "Unary": returning,
        "Up": returning,
        "DownWriting": writing,
        "DownYielding": yielding,
        "BothWriting": writing,
        "BothYielding": yielding,
    }


KINDS = list(raising(ShuttingDown()))


def test_the_table_has_every_error_of_the_runtime() -> None:
    declared = {
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, ServiceError) and each is not ServiceError
    }
    assert {type(error) for error, _, _ in TABLE} == declared


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_is_a_status_code(kind: Kind) -> None:
    assert grpc.StatusCode[kind.name].value[0] == kind.value


@pytest.mark.parametrize(("error", "code", "metadata"), TABLE, ids=lambda given: type(given).__name__)
async def test_an_error_reaches_its_caller_with_code_text_reason_and_metadata(
    serve: Any, error: ServiceError, code: grpc.StatusCode, metadata: dict[str, str]
) -> None:
    async with serve(**raising(error)) as served:
        failure = await served.failure("Unary")
    assert (failure.code(), failure.details()) == (code, str(error))
    info = info_of(failure)
    assert (info.reason, info.domain, dict(info.metadata)) == (error.reason, "askback", metadata)


@pytest.mark.parametrize("method", KINDS)
async def test_every_kind_and_style_of_handler_is_covered(serve: Any, method: str) -> None:
    async with serve(**raising(TooLarge("a page", limit=1, actual=2))) as served:
        failure = await served.failure(method, iter(()) if method.startswith(("Up", "Both")) else None)
    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert info_of(failure).reason == "TOO_LARGE"


async def test_what_a_stream_sent_before_its_error_arrives(serve: Any) -> None:
    async with serve(**raising(ShuttingDown())) as served:
        call = served.call("DownYielding")
        assert (await call.read()).value == "first"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_field_violations_are_told_one_by_one(serve: Any) -> None:
    wrong = InvalidField([FieldViolation("user_id", "must be set"), FieldViolation("page_size", "must be 0 or more")])
    async with serve(**raising(wrong)) as served:
        failure = await served.failure("Unary")
    bad = part(details_of(failure), error_details_pb2.BadRequest)
    assert [(each.field, each.description) for each in bad.field_violations] == [
        ("user_id", "must be set"),
        ("page_size", "must be 0 or more"),
    ]


async def test_when_to_retry_is_told(serve: Any) -> None:
    class Busy(ServiceError):
        kind = Kind.ABORTED
        reason = "RUN_IN_PROGRESS"

    async with serve(**raising(Busy("busy", retry_after_s=1.5))) as served:
        failure = await served.failure("Unary")
    assert part(details_of(failure), error_details_pb2.RetryInfo).retry_delay.ToTimedelta().total_seconds() == 1.5


async def test_grpc_status_reads_the_details(serve: Any) -> None:
    async with serve(**raising(InvalidPageToken())) as served:
        failure: Any = await served.failure("Unary")
    # It has what from_call asks for, without being declared a grpc.Call.
    status = rpc_status.from_call(failure)
    assert status is not None
    assert part(status, error_details_pb2.ErrorInfo).reason == "INVALID_PAGE_TOKEN"


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize(
    "error", [RuntimeError(SECRET), TimeoutError(SECRET), ExceptionGroup(SECRET, [ValueError(SECRET)])], ids=repr
)
async def test_an_unforeseen_error_shows_nothing_of_itself(serve: Any, method: str, error: Exception) -> None:
    with structlog.testing.capture_logs(processors=[merge_contextvars]) as lines:
        async with serve(**raising(error)) as served:
            failure = await served.failure(method, metadata=(("x-request-id", "r-7"),))
    assert failure.code() is grpc.StatusCode.INTERNAL
    assert dict(info_of(failure).metadata) == {"request_id": "r-7"}
    assert "hunter2" not in str(failure)
    [unforeseen] = [line for line in lines if line["event"] == "unforeseen_error"]
    assert (unforeseen["request_id"], unforeseen["exc_info"]) == ("r-7", error)


@pytest.mark.parametrize("method", KINDS)
async def test_a_cancellation_of_the_handlers_own_making_still_gets_a_status(serve: Any, method: str) -> None:
    async with serve(**raising(asyncio.CancelledError())) as served:
        failure = await served.failure(method)
    assert failure.code() is grpc.StatusCode.INTERNAL
    assert info_of(failure).reason == "INTERNAL"


async def test_an_error_raised_in_a_task_group_is_found(serve: Any) -> None:
    async def fail() -> None:
        raise InvalidPageToken

    async def handler(request: Any, context: Any) -> StringValue:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
        return StringValue()

    async with serve(Unary=handler) as served:
        failure = await served.failure("Unary")
    assert info_of(failure).reason == "INVALID_PAGE_TOKEN"


async def test_a_method_left_to_the_generated_base_class_is_not_implemented(serve: Any) -> None:
    def generated(request: Any, context: Any) -> Any:
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Method not implemented!")
        raise NotImplementedError("Method not implemented!")

    async with serve(Unary=generated, Down=generated, Up=generated, Both=generated) as served:
        for method in ("Unary", "Down", "Up", "Both"):
            failure = await served.failure(method)
            assert failure.code() is grpc.StatusCode.UNIMPLEMENTED
            assert dict(info_of(failure).metadata) == {"feature": method}


@pytest.mark.parametrize("method", ["Unary", "Down", "Up", "Both"])
async def test_an_unknown_method_is_not_implemented(serve: Any, method: str) -> None:
    async with serve() as served:
        failure = await served.failure(method)
    assert failure.code() is grpc.StatusCode.UNIMPLEMENTED
    assert info_of(failure).reason == "NOT_IMPLEMENTED"


@pytest.mark.parametrize("method", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
async def test_bytes_that_are_no_message_are_an_invalid_request(serve: Any, method: str) -> None:
    async def count(requests: Any, context: Any) -> StringValue:
        async for _ in requests:
            pass
        return StringValue()

    async def pass_on(requests: Any, context: Any) -> Any:
        async for request in requests:
            yield request

    async def fine(request: Any, context: Any) -> StringValue:
        return StringValue()

    async def nothing(request: Any, context: Any) -> None:
        return

    names = {"unary_unary": "Unary", "unary_stream": "Down", "stream_unary": "Up", "stream_stream": "Both"}
    async with serve(Unary=fine, Down=nothing, Up=count, Both=pass_on) as served:
        raw = b"\xff\xff"
        call = getattr(served.channel, method)(f"/test.Echo/{names[method]}")
        running = call(raw if method.startswith("unary") else iter([raw]), timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            if method.endswith("unary"):
                await running
            else:
                await running.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert part(details_of(caught.value), error_details_pb2.BadRequest).field_violations[0].field == "request"


async def test_a_response_of_the_wrong_type_is_an_internal_error(serve: Any) -> None:
    async def wrong(request: Any, context: Any) -> Any:
        return SECRET

    async with serve(Unary=wrong) as served:
        failure = await served.failure("Unary")
    assert failure.code() is grpc.StatusCode.INTERNAL
    assert "hunter2" not in str(failure)


async def test_a_huge_error_still_arrives_as_itself(serve: Any) -> None:
    wrong = InvalidField([FieldViolation("字段" * 400, "过长\r\n" * 900) for _ in range(200)])
    async with serve(**raising(wrong)) as served:
        failure = await served.failure("Unary")
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert info_of(failure).reason == "INVALID_FIELD"
    assert "\n" not in (failure.details() or "")
    assert details_of(failure).ByteSize() <= 1024


async def test_a_handlers_own_abort_passes(serve: Any) -> None:
    async def handler(request: Any, context: Any) -> StringValue:
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "too far")
        return StringValue()

    async with serve(Unary=handler) as served:
        failure = await served.failure("Unary", metadata=(("x-request-id", "r-9"),))
    assert (failure.code(), failure.details()) == (grpc.StatusCode.OUT_OF_RANGE, "too far")
    assert dict(failure.trailing_metadata())["x-request-id"] == "r-9"
