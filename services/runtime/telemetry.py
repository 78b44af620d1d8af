"""Structured logs on stderr: event names and values, never what users or models said.

An exception's text may hold anything, from a question to a connection string, so of exceptions only the types
and the places are written, in whichever library they arose.
"""

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_WRITTEN_AS_TEXT = (date, Decimal, Enum, PurePath, UUID)
_LONGEST_CHAIN = 8


def configure(*, level: str, as_json: bool | None = None) -> None:
    """Sets up the log of this process; `as_json` None means JSON unless a person watches.

    Loggers of the standard library come out the same way, from WARNING up; migrations from `level` up.
    """
    on_terminal = sys.stderr.isatty()
    as_json = not on_terminal if as_json is None else as_json
    renderer: Processor = (
        structlog.processors.JSONRenderer(serializer=_to_json)
        if as_json
        else structlog.dev.ConsoleRenderer(colors=on_terminal)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            exceptions_without_texts,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=_Stderr,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog()]
    root.setLevel(max(logging.WARNING, _LEVELS[level]))
    logging.getLogger("alembic").setLevel(_LEVELS[level])


def request_id() -> str:
    """The id of the call that this code runs for; empty outside any."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def exceptions_without_texts(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replaces `exc_info` by `exception`: types, causes and places."""
    given = event.pop("exc_info", None)
    if given:
        error = (
            given if isinstance(given, BaseException) else (given[1] if isinstance(given, tuple) else sys.exception())
        )
        if error is not None:
            event["exception"] = "\n".join(_lines(error, depth=0))
    return event


def _lines(error: BaseException, *, depth: int) -> Iterator[str]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if depth < _LONGEST_CHAIN:
        if cause is not None:
            yield from _lines(cause, depth=depth + 1)
            yield "which led to"
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions[:_LONGEST_CHAIN]:
                yield from _lines(member, depth=depth + 1)
                yield "within"
    yield f"{type(error).__module__}.{type(error).__qualname__}"
    for frame in traceback.extract_tb(error.__traceback__):
        yield f"  {frame.filename}:{frame.lineno} in {frame.name}"


def _to_json(event: EventDict, **_: Any) -> str:
    return json.dumps(event, default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    return str(value) if isinstance(value, _WRITTEN_AS_TEXT) else type(value).__name__


class _Stderr:
    """Writes a line; a log that cannot be written never fails what it tells of."""

    def __init__(self, *_: Any):
        pass

    def msg(self, line: str) -> None:
        try:
            sys.stderr.write(line + "\n")
        except (OSError, ValueError):
            # Closed, or its reader has gone: there is nowhere left to say so.
            return

    log = debug = info = warn = warning = error = critical = fatal = exception = msg


class _ToStructlog(logging.Handler):
    """Of other libraries' records, the text before its values were put in: those may hold anything."""

    def emit(self, record: logging.LogRecord) -> None:
        ours = record.name.startswith("alembic")
        text = record.getMessage() if ours else str(record.msg).partition("\n")[0]
        structlog.get_logger().log(record.levelno, text, logger=record.name, exc_info=record.exc_info)
