import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from google.protobuf.wrappers_pb2 import StringValue
from structlog.contextvars import merge_contextvars

from services.runtime import telemetry


class Holding:
    """Handlers that wait for ever, and tell when they began and when their `finally` ran."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def returning(self, request: Any, context: Any) -> StringValue:
        try:
            self.began.set()
            await asyncio.Event().wait()
            return StringValue()
        finally:
            self.ended.set()

    async def writing(self, request: Any, context: Any) -> None:
        try:
            self.began.set()
            await context.write(StringValue(value="first"))
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def yielding(self, request: Any, context: Any) -> Any:
        try:
            self.began.set()
            while True:
                yield StringValue(value="x" * 100_000)
        finally:
            self.ended.set()

    def handlers(self) -> dict[str, Any]:
        return {
            "Unary": self.returning,
            "Up": self.returning,
            "DownWriting": self.writing,
            "DownYielding": self.yielding,
            "BothWriting": self.writing,
            "BothYielding": self.yielding,
        }


KINDS = list(Holding().handlers())


async def echo(request: Any, context: Any) -> Any:
    return request


@pytest.mark.parametrize("method", KINDS)
async def test_a_caller_that_leaves_ends_the_handler_through_its_finally_and_is_no_error(
    serve: Any, method: str
) -> None:
    holding = Holding()
    with structlog.testing.capture_logs() as lines:
        async with serve(**holding.handlers()) as served:
            call = served.call(method)
            reading = asyncio.ensure_future(call.read() if method.startswith(("Down", "Both")) else call)
            async with asyncio.timeout(10):
                await holding.began.wait()
                assert served.running.live_calls == 1
                call.cancel()
                await holding.ended.wait()
            await asyncio.gather(reading, return_exceptions=True)
    assert served.running.live_calls == 0
    [line] = [line for line in lines if line["event"] == "call"]
    assert line["code"] == "CANCELLED"
    assert not [line for line in lines if line["log_level"] in ("warning", "error")]


async def test_a_callers_deadline_ends_the_handler_and_is_logged_as_such(serve: Any) -> None:
    holding = Holding()
    with structlog.testing.capture_logs() as lines:
        async with serve(**holding.handlers()) as served:
            failure = await served.failure("Unary", timeout=0.3)
    assert failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert holding.ended.is_set()
    assert [line["code"] for line in lines if line["event"] == "call"] == ["DEADLINE_EXCEEDED"]


@pytest.mark.parametrize("method", KINDS)
async def test_a_call_past_the_services_own_limit_is_ended_and_its_finally_runs(serve: Any, method: str) -> None:
    holding = Holding()
    limits = {"unary_limit_s": 0.2, "stream_limit_s": 0.2}
    async with serve(**holding.handlers(), options=limits) as served:
        failure = await served.failure(method)
    assert failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert failure.details() == f"{method} took more than 0.2 s"
    assert b"TIME_LIMIT" in dict(failure.trailing_metadata())["grpc-status-details-bin"]
    assert holding.ended.is_set()


async def test_a_method_may_have_a_limit_of_its_own(serve: Any) -> None:
    holding = Holding()
    async with serve(**holding.handlers(), options={"limits_s": {"/test.Echo/Unary": 0.1}}) as served:
        failure = await served.failure("Unary")
    assert failure.details() == "Unary took more than 0.1 s"


async def test_the_callers_request_id_comes_back_and_reaches_the_handler(serve: Any) -> None:
    async def handler(request: Any, context: Any) -> StringValue:
        return StringValue(value=telemetry.request_id())

    async with serve(Unary=handler) as served:
        call = served.call("Unary", metadata=(("x-request-id", "order-17"),))
        assert (await call).value == "order-17"
        assert dict(await call.trailing_metadata())["x-request-id"] == "order-17"


@pytest.mark.parametrize("sent", [None, "", "x" * 129, "   "])
async def test_without_a_usable_request_id_one_is_made(serve: Any, sent: str | None) -> None:
    metadata = () if sent is None else (("x-request-id", sent),)
    async with serve(Unary=echo) as served:
        made = []
        for _ in range(2):
            call = served.call("Unary", metadata=metadata)
            await call
            made.append(dict(await call.trailing_metadata())["x-request-id"])
    assert all(len(each) == 32 and each != sent for each in made)
    assert made[0] != made[1]


async def test_an_error_carries_the_request_id(serve: Any) -> None:
    async with serve() as served:
        failure = await served.failure("Unary", metadata=(("x-request-id", "order-18"),))
    assert dict(failure.trailing_metadata())["x-request-id"] == "order-18"


async def test_each_call_is_one_line_without_what_was_said(serve: Any) -> None:
    with structlog.testing.capture_logs(processors=[merge_contextvars]) as lines:
        async with serve(Unary=echo) as served:
            await served.call("Unary", StringValue(value="my secret"), metadata=(("x-request-id", "r-1"),))
    [line] = lines
    assert (line["event"], line["rpc"], line["request_id"], line["code"]) == ("call", "/test.Echo/Unary", "r-1", "OK")
    assert line["peer"] == "ipv4:127.0.0.1"
    assert line["ms"] >= 0
    assert "my secret" not in str(line)


async def test_all_kinds_and_styles_of_handler_work(serve: Any) -> None:
    async def join(requests: Any, context: Any) -> StringValue:
        return StringValue(value="".join([request.value async for request in requests]))

    async def twice_writing(request: Any, context: Any) -> None:
        for _ in range(2):
            await context.write(request)

    async def twice_yielding(request: Any, context: Any) -> Any:
        for _ in range(2):
            yield request

    async def echo_reading(requests: Any, context: Any) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(request)

    async def echo_yielding(requests: Any, context: Any) -> Any:
        async for request in requests:
            yield request

    handlers = {"Up": join, "DownWriting": twice_writing, "DownYielding": twice_yielding}
    async with serve(Unary=echo, BothReading=echo_reading, BothYielding=echo_yielding, **handlers) as served:
        two = [StringValue(value="a"), StringValue(value="b")]
        assert (await served.call("Unary", two[0])).value == "a"
        assert (await served.call("Up", iter(two))).value == "ab"
        for method in ("DownWriting", "DownYielding"):
            assert [each.value async for each in served.call(method, two[0])] == ["a", "a"]
        for method in ("BothReading", "BothYielding"):
            assert [each.value async for each in served.call(method, iter(two))] == ["a", "b"]
        assert served.running.live_calls == 0


async def test_messages_up_to_16_mib_pass(serve: Any) -> None:
    async with serve(Unary=echo) as served:
        failure = await served.failure("Unary", StringValue(value="x" * (16 * 1024 * 1024)))
        assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        channel_options = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(served.running.address, options=channel_options) as channel:
            call: Any = channel.unary_unary("/test.Echo/Unary")
            large = StringValue(value="x" * (16 * 1024 * 1024 - 16)).SerializeToString()
            assert await call(large) == large
