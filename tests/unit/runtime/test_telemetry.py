import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]

BEGIN = """
import logging, sys, structlog
from services.runtime import telemetry
telemetry.configure(level="info", as_json=True)
log = structlog.get_logger()
"""


def logged(program: str) -> list[dict[str, Any]]:
    """What a process of its own writes: how a process logs is set once."""
    ran = subprocess.run(
        [sys.executable, "-c", BEGIN + program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == ""
    return [json.loads(line) for line in ran.stderr.splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_values() -> None:
    [line] = logged('log.debug("hidden")\nlog.info("stored", count=2, word="naïve\\n")')
    assert (line["event"], line["level"], line["count"], line["word"]) == ("stored", "info", 2, "naïve\n")
    assert line["time"].endswith("Z")


def test_an_exceptions_text_is_never_written_but_its_type_cause_and_place_are() -> None:
    [line] = logged(
        """
def fail():
    try:
        raise KeyError("hunter2")
    except KeyError as cause:
        raise ExceptionGroup("hunter2", [ValueError("hunter2")]) from cause
try:
    fail()
except Exception:
    log.exception("failed")
"""
    )
    assert "hunter2" not in json.dumps(line)
    for expected in ("builtins.KeyError", "builtins.ValueError", "builtins.ExceptionGroup", "in fail"):
        assert expected in line["exception"]


def test_other_libraries_come_out_the_same_way_without_the_values_of_their_texts() -> None:
    lines = logged(
        """
logging.getLogger("sqlalchemy.engine").info("SELECT %s", "hunter2")
logging.getLogger("grpc").warning("failed for %s", "hunter2")
logging.getLogger("alembic.runtime.migration").info("Running upgrade %s", "0001")
try:
    raise ValueError("hunter2")
except ValueError:
    logging.getLogger("asyncio").exception("Task failed\\nhunter2")
"""
    )
    assert [(line["logger"], line["level"], line["event"]) for line in lines] == [
        ("grpc", "warning", "failed for %s"),
        ("alembic.runtime.migration", "info", "Running upgrade 0001"),
        ("asyncio", "error", "Task failed"),
    ]
    assert "hunter2" not in json.dumps(lines)


def test_a_value_of_unknown_type_is_written_as_its_type() -> None:
    [line] = logged(
        'import uuid\nclass Message:\n  __str__ = __repr__ = lambda self: "hunter2"\n'
        'log.info("x", a=Message(), b=uuid.UUID(int=1))'
    )
    assert (line["a"], line["b"]) == ("Message", "00000000-0000-0000-0000-000000000001")


def test_a_log_that_cannot_be_written_fails_nothing() -> None:
    assert logged('sys.stderr.close()\nlog.info("unheard")') == []
