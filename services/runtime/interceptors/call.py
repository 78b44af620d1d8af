"""One gRPC interceptor that takes every call, of whichever kind, through an ordered list of layers.

grpc has four kinds of handler, each in two styles, and runs its interceptors anew for every call. Here a
handler is wrapped once, when it is first called, and a layer sees all kinds and styles as one: something to
await.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import Any, Protocol, TypeAlias

import grpc
import grpc.aio

from services.runtime.errors import InvalidField, NotImplementedYet

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Proceed = Callable[[], Awaitable[Any]]

_LONGEST_UNKNOWN_METHOD = 200
_PLUMBING = ("/grpc.health.", "/grpc.reflection.")


@dataclass(slots=True, eq=False)
class Call:
    """One call under way; the layers tell one another about it here."""

    method: str
    """As grpc writes it: /package.Service/Method."""
    streaming: bool
    """Either side sends a stream."""
    plumbing: bool
    """Health and reflection, not the service's own methods."""
    context: Context
    request: Any
    """The message, or an async iterator of them; None where the bytes were no such message."""
    request_id: str = ""
    code: str = ""
    """How it ended, once the errors layer has ended it."""
    reason: str = ""
    cut_off: bool = False
    """The server is stopping and has cancelled it."""


class Layer(Protocol):
    """Awaits `proceed` once, around which it does its own; what that returns or raises is passed on."""

    async def __call__(self, call: Call, proceed: Proceed) -> Any: ...


class Chain(grpc.aio.ServerInterceptor):
    """The layers around every handler, the first outermost."""

    def __init__(self, layers: Iterable[Layer]):
        self._inwards = tuple(reversed(tuple(layers)))
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            # Not remembered: whoever calls chooses the name.
            return self._wrap(method[:_LONGEST_UNKNOWN_METHOD], _UNKNOWN)
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = self._wrapped[method] = (handler, self._wrap(method, handler))
        return known[1]

    def _wrap(self, method: str, handler: Handler) -> Handler:
        behaviour: Callable[..., Any] | None = (
            handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        )
        if behaviour is None:
            raise TypeError(f"{method} has no handler")
        run: Callable[[Call], Awaitable[Any]]
        if handler.response_streaming:
            run = partial(_run_stream, behaviour)
        else:
            run = partial(_run_unary, behaviour, handler.response_serializer)
        inwards = self._inwards
        streaming = handler.request_streaming or handler.response_streaming
        plumbing = method.startswith(_PLUMBING)

        async def through(request: Any, context: Context) -> Any:
            call = Call(method=method, streaming=streaming, plumbing=plumbing, context=context, request=request)
            proceed: Proceed = partial(run, call)
            for layer in inwards:
                proceed = partial(layer, call, proceed)
            return await proceed()

        build: Callable[..., Handler]
        if handler.request_streaming:
            parse = _parse_or_raise
            build = (
                grpc.stream_stream_rpc_method_handler
                if handler.response_streaming
                else grpc.stream_unary_rpc_method_handler
            )
        else:
            parse = _parse_or_none
            build = (
                grpc.unary_stream_rpc_method_handler
                if handler.response_streaming
                else grpc.unary_unary_rpc_method_handler
            )
        return build(
            through,
            request_deserializer=handler.request_deserializer and partial(parse, handler.request_deserializer),
            response_serializer=handler.response_serializer if handler.response_streaming else None,
        )


async def _run_unary(behaviour: Callable[..., Any], serialize: Callable[[Any], bytes] | None, call: Call) -> Any:
    if call.request is None:
        raise _malformed()
    response = behaviour(call.request, call.context)
    if not isawaitable(response):
        raise TypeError(f"the handler of {call.method} is not async")
    message = await response
    # Serialised here, so that a response of the wrong type fails inside the layers; bytes are serialised already.
    return message if serialize is None or type(message) is bytes else serialize(message)


async def _run_stream(behaviour: Callable[..., Any], call: Call) -> None:
    if call.request is None:
        raise _malformed()
    responses = behaviour(call.request, call.context)
    if isawaitable(responses):
        await responses
        return
    if not hasattr(responses, "__aiter__"):
        raise TypeError(f"the handler of {call.method} is not async")
    write = call.context.write
    try:
        async for response in responses:
            await write(response)
    finally:
        # A generator left by a failed write would run its `finally` whenever it is collected.
        if hasattr(responses, "aclose"):
            await responses.aclose()


def _parse_or_none(parse: Callable[[bytes], Any], data: bytes) -> Any:
    # grpc parses a single request before any layer runs, and would show its caller the exception.
    try:
        return parse(data)
    except Exception:
        return None


def _parse_or_raise(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except Exception as error:
        raise _malformed() from error


def _malformed() -> InvalidField:
    return InvalidField.of("request", "must be a valid message of the method's request type")


async def _refuse_unknown_method(requests: Any, context: Context) -> None:
    raise NotImplementedYet("the method")


# It reads nothing, so that it fits a call of any kind.
_UNKNOWN: Handler = grpc.stream_stream_rpc_method_handler(_refuse_unknown_method)
