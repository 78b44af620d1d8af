"""The `askback` command at a terminal."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios

import grpc
import pytest

from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import session_pb2
from tests.integration.client.command import PATIENCE_S, chat_requests, environment
from tests.integration.client.scripted import Failure, Services, answered_turn, question_back


async def test_at_a_terminal_a_number_answers_the_question_back(services: Services) -> None:
    services.agent.turns = [question_back(), answered_turn()]
    code, shown = await at_a_terminal(services, "ask", "How long?", types={"or your own words > ": "2\n"})
    assert code == 0
    _, second = chat_requests(services)
    assert (second.message, second.session_id, second.answers_task_id) == ("Borealis", "s-1", "task-1")
    assert "\x1b[" in shown
    assert "warranty.md · p. 2" in shown


async def test_at_a_terminal_a_number_that_no_option_has_is_asked_for_again(services: Services) -> None:
    services.agent.turns = [question_back(), answered_turn()]
    code, shown = await at_a_terminal(
        services, "ask", "How long?", types={"or your own words > ": "7\n", "answer in words": "2\n"}
    )
    assert code == 0
    assert shown.count("1-2, or your own words > ") == 2
    assert [request.message for request in chat_requests(services)] == ["How long?", "Borealis"]


async def test_at_a_terminal_a_question_in_chinese_is_prompted_for_in_chinese(services: Services) -> None:
    services.agent.turns = [question_back(prompt="请问您指的是哪一个？"), answered_turn()]
    code, shown = await at_a_terminal(
        services, "ask", "多长？", types={"或直接输入您的回答 > ": "7\n", "请选择 1 至 2": "1\n"}
    )
    assert code == 0
    assert "your own words" not in shown
    assert [request.message for request in chat_requests(services)] == ["多长？", "Atlas"]


async def test_at_a_terminal_a_session_id_stands_whole_and_the_title_gives_way(services: Services) -> None:
    ids = [f"{number:032x}" for number in range(25)]
    services.sessions.sessions = [
        session_pb2.Session(session_id=each, title="How long is the warranty of the Atlas line?", message_count=2)
        for each in ids
    ]
    _, shown = await at_a_terminal(services, "sessions", types={})
    assert [each for each in ids if each in shown] == ids[:20]
    assert "How long" in shown and "…" in shown
    assert "--limit 40" in shown
    _, shown = await at_a_terminal(services, "sessions", "--limit", "30", types={})
    assert [each for each in ids if each in shown] == ids
    assert "--limit" not in shown


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("tasks", "no question waits for your answer"),
        ("sessions", "no session yet"),
        ("documents", "no document in this collection"),
    ],
)
async def test_at_a_terminal_an_empty_list_says_so(services: Services, command: str, said: str) -> None:
    code, shown = await at_a_terminal(services, command, types={})
    assert code == 0
    assert said in shown


async def test_at_a_terminal_a_task_id_stands_whole(services: Services) -> None:
    task_id, session_id = "a" * 40, "b" * 60
    services.hitl.tasks = [hitl_pb2.HitlTask(task_id=task_id, session_id=session_id, prompt="Which?", options=["A"])]
    _, shown = await at_a_terminal(services, "tasks", types={})
    assert task_id in shown and session_id in shown


async def test_at_a_terminal_a_long_citation_is_cut_to_one_line(services: Services) -> None:
    message = session_pb2.Message(position=1, type=session_pb2.MESSAGE_TYPE_AI, content="So it is [1].")
    message.rag_trace.retrieved_chunks.add(filename="manual.md", text="Manual › " + "Deep " * 20 + "end\n\nText.")
    services.sessions.messages = [message]
    _, shown = await at_a_terminal(services, "history", "s-1", types={})
    [line] = [line for line in shown.splitlines() if "manual.md" in line]
    assert "manual.md · Manual › Deep" in line and "…" in line


async def test_at_a_terminal_an_empty_answer_leaves_the_question_open(services: Services) -> None:
    services.agent.turns = [question_back()]
    code, shown = await at_a_terminal(services, "ask", "How long?", types={"or your own words > ": "\n"})
    assert code == 0
    assert "--answers task-1" in shown


async def test_at_a_terminal_the_cursor_comes_back_after_a_failure(services: Services) -> None:
    services.agent.turns = [[*answered_turn()[:3], Failure(grpc.StatusCode.INTERNAL, "INTERNAL")]]
    code, shown = await at_a_terminal(services, "ask", "How long?", types={})
    assert code == 1
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


async def at_a_terminal(services: Services, *arguments: str, types: dict[str, str]) -> tuple[int, str]:
    """Runs the command on a pseudo-terminal; types each text once what it answers to is shown."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "askback.cli", *arguments),
        stdin=its,
        stdout=its,
        stderr=its,
        env=environment(services),
    )
    os.close(its)
    shown = b""
    waiting = dict(types)
    try:
        # The other end closed shows as an error on Linux, and as no bytes elsewhere.
        while piece := await asyncio.wait_for(asyncio.to_thread(os.read, ours, 65_536), PATIENCE_S):
            shown += piece
            for prompt in [prompt for prompt in waiting if prompt in shown.decode(errors="replace")]:
                os.write(ours, waiting.pop(prompt).encode())
    except OSError:
        pass
    finally:
        os.close(ours)
    return await asyncio.wait_for(process.wait(), PATIENCE_S), shown.decode()
