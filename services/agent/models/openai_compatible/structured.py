"""An object of a given form from a model, by the best way that its endpoint knows."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import structlog
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from services.agent.errors import ModelMalformed, ModelRefused
from services.agent.models.openai_compatible.chat import UNKNOWN_PARAMETER
from services.agent.models.openai_compatible.failures import CONTENT_FILTER, REFUSAL, Failure, failure_of
from services.agent.models.openai_compatible.patience import Patience
from services.agent.models.openai_compatible.written import Form, Unreadable, json_schema, read
from services.agent.rag.model_prompts import REPAIR
from services.agent.texts import clean, cut
from services.agent.usage import Usage, UsageListener

log = structlog.get_logger()

# Routers between several providers say 404 where none of them takes a parameter.
_MAY_BE_THE_WAY = UNKNOWN_PARAMETER | {"404"}
# Of a reply that is shown to its model again.
_MAX_SHOWN_BYTES = 8_192


class Way(IntEnum):
    """How a form is asked for, the surest first."""

    JSON_SCHEMA = 0
    FUNCTION = 1
    TEXT = 2


class StructuredModel:
    """One model of an endpoint, and what was learnt of it: it lasts as long as the process."""

    def __init__(self, model: ChatOpenAI) -> None:
        self._model = model
        self._way = Way.JSON_SCHEMA

    async def write(
        self,
        form: type[Form],
        messages: Sequence[BaseMessage],
        *,
        name: str,
        what: str,
        limit_s: float,
        on_usage: UsageListener | None,
    ) -> Form:
        """What the model writes, read and checked; one repair is asked for where it is not of its form.

        `name` is the form's, for the endpoint; `what` is the work's, for TimeLimit. The limit holds for all calls
        together. Raises ServiceError.
        """
        patience = Patience(what, limit_s=limit_s)
        asked = list(messages)
        async with patience.limit():
            while True:
                reply = await self._reply(asked, form, name=name, patience=patience, on_usage=on_usage)
                try:
                    return read(form, _written(reply))
                except Unreadable as unreadable:
                    await patience.before_another_try(Failure(ModelMalformed()))
                    shown = cut(clean(str(reply.text)), at_most=_MAX_SHOWN_BYTES)
                    asked = [*messages, AIMessage(shown or "{}"), HumanMessage(REPAIR.format(why=unreadable.why))]

    async def _reply(
        self,
        messages: list[BaseMessage],
        form: type[BaseModel],
        *,
        name: str,
        patience: Patience,
        on_usage: UsageListener | None,
    ) -> AIMessage:
        """The reply by the best way known to work; a way that the endpoint refuses gives way to the next."""
        way = self._way
        while True:
            try:
                reply = await self._model.ainvoke(messages, **_asking(way, form, name=name))
            except Exception as error:
                failure = failure_of(error)
                refused = failure.error
                if way < Way.TEXT and isinstance(refused, ModelRefused) and refused.provider_status in _MAY_BE_THE_WAY:
                    way = Way(way + 1)
                    continue
                await patience.before_another_try(failure)
                continue
            if way > self._way:
                # Only now is it known that it was the way, and not the request.
                self._way = way
                log.info("model_way_learnt", model=self._model.model_name, way=way.name.lower())
            _tell_usage(reply, on_usage)
            _raise_if_refused(reply)
            return reply


def _asking(way: Way, form: type[BaseModel], *, name: str) -> dict[str, Any]:
    schema = json_schema(form)
    if way is Way.JSON_SCHEMA:
        described = {"name": name, "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": described}}
    if way is Way.FUNCTION:
        function = {"name": name, "description": form.__doc__, "parameters": schema}
        return {
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": name}},
        }
    return {}


def _written(reply: AIMessage) -> str | dict[str, Any]:
    if reply.tool_calls:
        return reply.tool_calls[0]["args"]
    if reply.invalid_tool_calls:
        return reply.invalid_tool_calls[0]["args"] or ""
    return str(reply.text)


def _tell_usage(reply: AIMessage, on_usage: UsageListener | None) -> None:
    if on_usage is None:
        return
    used = reply.usage_metadata
    on_usage(
        Usage(
            input_tokens=used["input_tokens"] if used else 0,
            output_tokens=used["output_tokens"] if used else 0,
            model_calls=1,
        )
    )


def _raise_if_refused(reply: AIMessage) -> None:
    if reply.additional_kwargs.get("refusal"):
        raise ModelRefused(REFUSAL)
    if reply.response_metadata.get("finish_reason") == CONTENT_FILTER:
        raise ModelRefused(CONTENT_FILTER)
