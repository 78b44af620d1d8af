import asyncio
import socket
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from services.runtime.server import AddressInUse, AddressUnusable, ServerOptions, running_server

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health_of(served: Any, service: str) -> int:
    stub: Any = health_pb2_grpc.HealthStub(served.channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)).status)


def watch(served: Any, service: str = "") -> Any:
    stub: Any = health_pb2_grpc.HealthStub(served.channel)
    return stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=20)


async def reflect(served: Any, version: str, request: reflection_pb2.ServerReflectionRequest) -> Any:
    call: Any = served.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    [response] = [response async for response in call(iter([request]), timeout=10)]
    return response


@pytest.mark.parametrize("service", ["", "test.Echo"])
async def test_health_is_reported_overall_and_for_each_service(serve: Any, service: str) -> None:
    async with serve() as served:
        assert await health_of(served, service) == SERVING


async def test_health_of_an_unknown_service_is_not_found(serve: Any) -> None:
    async with serve() as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_of(served, "test.Other")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_follows_readiness_with_one_line_for_each_change(serve: Any) -> None:
    answers = {"now": True}

    async def ready() -> bool:
        return answers["now"]

    with structlog.testing.capture_logs() as lines:
        async with serve(ready=ready, options={"ready_interval_s": 0.01}) as served:
            watching = watch(served, "test.Echo")
            assert (await watching.read()).status == SERVING
            answers["now"] = False
            assert (await watching.read()).status == NOT_SERVING
            answers["now"] = True
            assert (await watching.read()).status == SERVING
            watching.cancel()
    assert [line["serving"] for line in lines if line["event"] == "health"] == [False, True]


async def test_readiness_that_fails_or_hangs_is_not_serving(serve: Any) -> None:
    async def fails() -> bool:
        raise OSError("gone")

    async def hangs() -> bool:
        await asyncio.Event().wait()
        return True

    for ready in (fails, hangs):
        async with serve(ready=ready, options={"ready_limit_s": 0.05}) as served:
            assert await health_of(served, "") == NOT_SERVING


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_the_services(serve: Any, version: str) -> None:
    async with serve() as served:
        listed = await reflect(served, version, reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {each.name for each in listed.list_services_response.service}
    assert {"test.Echo", "grpc.health.v1.Health", f"grpc.reflection.{version}.ServerReflection"} <= names


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_describes_itself(serve: Any, version: str) -> None:
    symbol = f"grpc.reflection.{version}.ServerReflection"
    async with serve() as served:
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
        described = await reflect(served, version, request)
    files = [FileDescriptorProto.FromString(each) for each in described.file_descriptor_response.file_descriptor_proto]
    assert [file.package for file in files] == [f"grpc.reflection.{version}"]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_can_be_switched_off(serve: Any, version: str) -> None:
    async with serve(options={"reflection": False}) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reflect(served, version, reflection_pb2.ServerReflectionRequest(list_services=""))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_second_server_on_a_port_says_that_it_is_taken(serve: Any) -> None:
    async with serve() as served:
        with pytest.raises(AddressInUse, match=f"{served.running.address} is in use by another process"):
            async with serve(options={"address": served.running.address}):
                pass


async def test_a_port_taken_by_something_else_says_so(serve: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(AddressInUse):
            async with serve(options={"address": f"127.0.0.1:{other.getsockname()[1]}"}):
                pass


@pytest.mark.parametrize("address", ["192.0.2.1:0", "192.0.2.1:50051", "no-such-host.invalid:50051"])
async def test_an_address_that_is_none_of_this_machine_says_so(serve: Any, address: str) -> None:
    with pytest.raises(AddressUnusable, match="cannot listen on"):
        async with serve(options={"address": address}):
            pass


async def test_the_port_is_free_again_after_leaving(serve: Any) -> None:
    async with serve() as served:
        address = served.running.address
    async with serve(options={"address": address}) as served:
        assert served.running.address == address


async def test_a_call_under_way_finishes_while_new_ones_are_refused(serve: Any) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Any, context: Any) -> StringValue:
        began.set()
        await go_on.wait()
        return StringValue(value="done")

    stack = AsyncExitStack()
    served = await stack.enter_async_context(serve(Unary=handler))
    call = asyncio.ensure_future(served.call("Unary"))
    watching = watch(served)
    assert (await watching.read()).status == SERVING
    await began.wait()
    leaving = asyncio.create_task(stack.aclose())
    assert (await watching.read()).status == NOT_SERVING
    async with asyncio.timeout(10), grpc.aio.insecure_channel(served.running.address) as late:
        refused = None
        call_late: Any = late.unary_unary("/test.Echo/Nothing")
        while refused is None:
            try:
                await call_late(b"", timeout=5)
            except grpc.aio.AioRpcError as error:
                refused = error.code() if error.code() is grpc.StatusCode.UNAVAILABLE else None
    go_on.set()
    assert (await call).value == "done"
    await leaving
    assert served.running.live_calls == 0


async def test_a_call_that_outlasts_the_drain_is_told_that_the_service_shuts_down(serve: Any) -> None:
    began, unwound = asyncio.Event(), asyncio.Event()

    async def handler(request: Any, context: Any) -> None:
        try:
            await context.write(StringValue(value="first"))
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            unwound.set()

    stack = AsyncExitStack()
    served = await stack.enter_async_context(serve(Down=handler, options={"drain_s": 0.1}))
    failure = asyncio.create_task(served.failure("Down"))
    await began.wait()
    leaving = asyncio.create_task(stack.aclose())
    error = await failure
    await leaving
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert b"SHUTTING_DOWN" in dict(error.trailing_metadata())["grpc-status-details-bin"]
    assert unwound.is_set()


async def test_hurrying_cuts_the_drain_short(serve: Any) -> None:
    began = asyncio.Event()

    async def handler(request: Any, context: Any) -> StringValue:
        began.set()
        await asyncio.Event().wait()
        return StringValue()

    stack = AsyncExitStack()
    served = await stack.enter_async_context(serve(Unary=handler, options={"drain_s": 3600}))
    failure = asyncio.create_task(served.failure("Unary"))
    await began.wait()
    leaving = asyncio.create_task(stack.aclose())
    served.running.hurry()
    async with asyncio.timeout(10):
        await leaving
        error = await failure
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert b"SHUTTING_DOWN" in dict(error.trailing_metadata())["grpc-status-details-bin"]
    assert served.running.live_calls == 0


async def test_hurrying_does_not_wait_for_a_handler_that_hangs(serve: Any) -> None:
    began, let_go = asyncio.Event(), asyncio.Event()

    async def handler(request: Any, context: Any) -> StringValue:
        began.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return StringValue()

    stack = AsyncExitStack()
    served = await stack.enter_async_context(serve(Unary=handler, options={"drain_s": 3600, "unwind_s": 0.2}))
    failure = asyncio.create_task(served.failure("Unary"))
    await began.wait()
    served.running.hurry()
    async with asyncio.timeout(20):
        await stack.aclose()
        error = await failure
    assert error.code() is not grpc.StatusCode.OK
    assert served.running.live_calls == 1
    let_go.set()


async def test_leaving_waits_for_a_handler_whose_caller_has_left(serve: Any) -> None:
    began, finished = asyncio.Event(), asyncio.Event()

    async def store() -> None:
        await asyncio.sleep(0.3)
        finished.set()

    async def handler(request: Any, context: Any) -> StringValue:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await store()
        return StringValue()

    async with serve(Unary=handler) as served:
        call = served.call("Unary")
        await began.wait()
        call.cancel()
    assert finished.is_set()
    assert served.running.live_calls == 0


async def test_nothing_is_served_where_registering_fails() -> None:
    def register(server: grpc.aio.Server) -> None:
        raise RuntimeError("no servicer")

    with pytest.raises(RuntimeError, match="no servicer"):
        async with running_server(
            options=ServerOptions(address="127.0.0.1:0"), register=register, service_names=["test.Echo"]
        ):
            pass
