"""What the README shows works as it stands there."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import System

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


async def test_the_grpcurl_calls_ask_answer_and_show_what_is_stored(system: System, user: str) -> None:
    section = README.read_text().split("## With grpcurl alone", 1)[1].split("\n## ", 1)[0]
    ask, list_tasks, answer, list_messages = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)

    asked = await _run(ask, system, user)
    task = asked[-2]["hitl_request"]
    [waiting] = (await _run(list_tasks, system, user))[0]["tasks"]
    assert waiting["task_id"] == task["task_id"]
    answered = await _run(answer.replace("TASK_ID", task["task_id"]), system, user)
    assert "pin.dat" in "".join(event.get("content", {}).get("text", "") for event in answered)
    assert answered[-1]["finished"]["status"] == "RUN_STATUS_COMPLETED"
    messages = (await _run(list_messages, system, user))[0]["messages"]
    assert [message["position"] for message in messages] == ["1", "2", "3", "4"]


async def test_the_client_of_a_few_lines_streams_an_answer(system: System, user: str) -> None:
    assert "3 years" in await _printed("ask.py", system, user)


async def test_storage_by_itself_keeps_a_conversation(system: System, user: str) -> None:
    assert await _printed("store.py", system, user) == (
        "revision 1\n1 Remember: the delivery is on Friday.\n2 Noted.\n"
    )


async def _printed(example: str, system: System, user: str) -> str:
    """By an example that stands in the README, too."""
    code = (ROOT / "examples" / example).read_text()
    assert f"```python\n{code}```" in README.read_text()
    code = (
        code.replace("127.0.0.1:50051", system.agent_server.address)
        .replace("127.0.0.1:50052", system.storage_address)
        .replace('"ada"', f'"{user}"')
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return printed.decode()


async def _run(command: str, system: System, user: str) -> list[dict[str, Any]]:
    """What the call prints, with its addresses and its user put in place."""
    grpcurl = shutil.which("grpcurl", path=str(Path(sys.executable).parent)) or shutil.which("grpcurl")
    if grpcurl is None:
        assert not os.environ.get("CI"), "CI's platforms have a grpcurl in the locks"
        pytest.skip("no grpcurl for this platform in the package index, and none on the PATH")
    command = (
        command.replace("127.0.0.1:50051", system.agent_server.address)
        .replace("127.0.0.1:50052", system.storage_address)
        .replace('"user_id":"ada"', f'"user_id":"{user}"')
        .replace("grpcurl", grpcurl, 1)
    )
    process = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    decoder, text, found = json.JSONDecoder(), printed.decode().strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found
