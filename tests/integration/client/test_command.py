import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import grpc
import pytest

from askback.agent.v1 import agent_service_pb2
from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import run_service_pb2, session_pb2
from tests.integration.client.scripted import Failure, Services, answered_turn, question_back

# Starting Python with the command takes a second or two on a busy machine.
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


Run = Callable[..., Awaitable[Finished]]


def environment(services: Services) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")},
        "ASKBACK_AGENT_ADDRESS": services.address,
        "ASKBACK_STORAGE_ADDRESS": services.address,
        "ASKBACK_USER": "ada",
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "80",
        "TERM": "xterm-256color",
    }


@pytest.fixture
def askback(services: Services) -> Run:
    """Runs the command with nobody at a terminal."""

    async def run(*arguments: str, stdin: str = "") -> Finished:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "askback.cli",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(services),
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), PATIENCE_S)
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())

    return run


def chat_requests(services: Services) -> list[agent_service_pb2.ChatRequest]:
    requests = [call.request for call in services.agent.recorder.calls]
    return [request for request in requests if isinstance(request, agent_service_pb2.ChatRequest)]


async def test_an_answer_is_printed_plainly_with_its_steps_and_citations(askback: Run, services: Services) -> None:
    services.agent.turns = [answered_turn()]
    finished = await askback("ask", "How long is the warranty?", "--collection", "manuals")
    assert finished == Finished(
        0,
        "     12 ms  🔎 Searching: 8 candidates\n"
        "            [1] How long?\n"
        "  1,234 ms  [1] 🧪 Grading\n"
        "\n"
        "The warranty is two years [1].\n"
        "\n"
        "[1] warranty.md · p. 2\n"
        "cites 1 of 2 pieces of evidence\n",
        "",
    )
    (request,) = chat_requests(services)
    assert (request.user_id, request.message, request.collection) == ("ada", "How long is the warranty?", "manuals")


async def test_json_is_one_event_a_line_and_nothing_else(askback: Run, services: Services) -> None:
    services.agent.turns = [answered_turn()]
    finished = await askback("ask", "How long?", "--json")
    events = [json.loads(line) for line in finished.out.splitlines()]
    assert [event["sequence"] for event in events] == ["1", "2", "3", "4", "5", "6", "7"]
    assert events[-1]["finished"] == {"status": "RUN_STATUS_COMPLETED"}


async def test_a_question_back_to_nobody_is_printed_and_left_open(askback: Run, services: Services) -> None:
    services.agent.turns = [question_back()]
    finished = await askback("ask", "How long?")
    assert finished.code == 0
    assert finished.out == (
        "\nWhich product?\n  1. Atlas\n  2. Borealis\n\n"
        "open question task-1; the next message in this session answers it:\n"
        "  askback ask --user ada --session s-1 --answers task-1 ANSWER\n"
        "to ask something else instead, which withdraws it:\n"
        "  askback ask --user ada --session s-1 --new QUESTION\n"
    )


async def test_a_number_picks_the_option_of_an_open_question(askback: Run, services: Services) -> None:
    services.hitl.tasks = [hitl_pb2.HitlTask(task_id="task-1", session_id="s-1", options=["Atlas", "Borealis"])]
    services.agent.turns = [answered_turn()]
    assert (await askback("ask", "2", "--answers", "task-1")).code == 0
    (request,) = chat_requests(services)
    assert (request.message, request.answers_task_id, request.session_id) == ("Borealis", "task-1", "s-1")


async def test_a_number_that_no_option_has_is_not_sent_as_the_answer(askback: Run, services: Services) -> None:
    services.hitl.tasks = [hitl_pb2.HitlTask(task_id="task-1", session_id="s-1", options=["Atlas", "Borealis"])]
    finished = await askback("ask", "7", "--answers", "task-1", "--session", "s-1")
    assert finished == Finished(2, "", "askback: choose 1 to 2, or answer in words\n")
    assert chat_requests(services) == []


async def test_a_new_question_takes_the_place_of_the_one_that_waits(askback: Run, services: Services) -> None:
    services.agent.turns = [answered_turn()]
    assert (await askback("ask", "And returns?", "--session", "s-1", "--new")).code == 0
    (request,) = chat_requests(services)
    assert (request.message, request.answers_task_id) == ("And returns?", "")
    assert request.pending_hitl_policy == run_service_pb2.PENDING_HITL_POLICY_REPLACE


@pytest.mark.parametrize(
    ("failure", "code", "line"),
    [
        (
            Failure(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", violations={"user_id": "1 to 128 characters"}),
            2,
            "askback: INVALID_FIELD: user_id: 1 to 128 characters\n",
        ),
        (
            Failure(grpc.StatusCode.NOT_FOUND, "COLLECTION_NOT_FOUND", "no collection of that name"),
            3,
            "askback: COLLECTION_NOT_FOUND: no collection of that name\n",
        ),
        (
            Failure(grpc.StatusCode.ABORTED, "RUN_IN_PROGRESS", "a run is under way", retry_after_s=2),
            4,
            "askback: RUN_IN_PROGRESS: a run is under way\naskback: it may work in 2 s\n",
        ),
        (
            Failure(grpc.StatusCode.INTERNAL, "MODEL_MALFORMED", "the answer had no form"),
            1,
            "askback: MODEL_MALFORMED: the answer had no form\n",
        ),
    ],
)
async def test_a_failure_is_told_in_a_line_and_by_the_exit_code(
    askback: Run, services: Services, failure: Failure, code: int, line: str
) -> None:
    services.agent.turns = [[failure]]
    assert await askback("ask", "How long?") == Finished(code, "", line)


async def test_a_service_that_is_unavailable_ends_with_5(askback: Run, services: Services) -> None:
    services.agent.turns = [[Failure(grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE", "no answer")]] * 3
    assert await askback("ask", "How long?") == Finished(5, "", "askback: MODEL_UNAVAILABLE: no answer\n")


async def test_a_refused_connection_names_the_address(askback: Run) -> None:
    finished = await askback("ask", "How long?", "--address", "127.0.0.1:1")
    assert finished.code == 5
    assert finished.err.splitlines() == [
        "askback: no connection to the agent at 127.0.0.1:1",
        "askback: `make run` starts the whole system here; ASKBACK_AGENT_ADDRESS names another address",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask",),
        ("ask", " "),
        ("nonsense",),
        ("ask", "hi", "--address", "a,b"),
        ("ask", "hi", "--address", "localhost"),
        ("ask", "hi", "--answers", "task-1", "--new"),
        ("ask", "\udcff"),
        ("delete", "s-1"),
        ("sessions", "--limit", "0"),
    ],
)
async def test_a_wrong_command_line_ends_with_2(askback: Run, services: Services, arguments: tuple[str, ...]) -> None:
    finished = await askback(*arguments)
    assert finished.code == 2
    assert "Traceback" not in finished.err
    assert services.agent.recorder.calls == services.sessions.recorder.calls == []


async def test_chat_stays_in_its_session_and_answers_what_was_left_open(askback: Run, services: Services) -> None:
    services.agent.turns = [question_back(), answered_turn(), answered_turn()]
    finished = await askback("chat", stdin="How long?\n1\n\nAnd returns?\n")
    assert finished.code == 0
    assert [(request.message, request.session_id, request.answers_task_id) for request in chat_requests(services)] == [
        ("How long?", "", ""),
        ("Atlas", "s-1", "task-1"),
        ("And returns?", "s-1", ""),
    ]


async def test_chat_asks_again_for_a_number_that_no_option_has(askback: Run, services: Services) -> None:
    services.agent.turns = [question_back(), answered_turn()]
    finished = await askback("chat", stdin="How long?\n7\n1\n")
    assert finished.err == "askback: choose 1 to 2, or answer in words\n"
    assert [request.message for request in chat_requests(services)] == ["How long?", "Atlas"]


async def test_chat_goes_past_an_open_question_after_skip(askback: Run, services: Services) -> None:
    services.agent.turns = [question_back(), answered_turn(), answered_turn()]
    assert (await askback("chat", stdin="How long?\n/skip\nAnd returns?\nAnd repairs?\n")).code == 0
    assert [(request.message, request.answers_task_id) for request in chat_requests(services)] == [
        ("How long?", ""),
        ("And returns?", ""),
        ("And repairs?", ""),
    ]
    assert [request.pending_hitl_policy for request in chat_requests(services)] == [
        run_service_pb2.PENDING_HITL_POLICY_UNSPECIFIED,
        run_service_pb2.PENDING_HITL_POLICY_REPLACE,
        run_service_pb2.PENDING_HITL_POLICY_UNSPECIFIED,
    ]


@pytest.mark.parametrize("word", ["quit", "EXIT", "/quit"])
async def test_a_word_ends_a_chat(askback: Run, services: Services, word: str) -> None:
    finished = await askback("chat", stdin=f"{word}\nHow long?\n")
    assert (finished.code, chat_requests(services)) == (0, [])


async def test_the_version_is_told(askback: Run) -> None:
    assert await askback("--version") == Finished(0, f"askback {version('askback-client')}\n", "")


async def test_ctrl_c_cancels_the_call_and_ends_with_130(services: Services) -> None:
    services.agent.turns, services.agent.hangs_after_events = [answered_turn()[:3]], True
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "askback.cli", "ask", "How long?"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(services),
    )
    await asyncio.wait_for(services.agent.recorder.handler_began.wait(), PATIENCE_S)
    assert process.stdout is not None
    await process.stdout.readuntil(b"Grading\n")
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    await asyncio.wait_for(services.agent.recorder.handler_left.wait(), PATIENCE_S)
    assert (process.returncode, err) == (130, b"")


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


async def test_a_folder_is_ingested_with_its_text_files_alone(askback: Run, services: Services, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.md", "b.pdf", "deep/c.TXT"):
        (tmp_path / name).write_text("words")
    finished = await askback("ingest", str(tmp_path), "--collection", "manuals")
    assert (finished.code, finished.out) == (
        0,
        "a.md: 3 chunks\nc.TXT: 3 chunks\n2 ingested, 0 unchanged, 0 refused\n"
        "1 passed over: only .md and .txt are read from a folder\n",
    )
    headers = [part.header for part in services.knowledge.parts if part.HasField("header")]
    assert [(header.filename, header.collection) for header in headers] == [("a.md", "manuals"), ("c.TXT", "manuals")]


async def test_a_refused_file_is_told_in_plain_words_and_counted(
    askback: Run, services: Services, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("words")
    services.knowledge.refuses_header_with = Failure(
        grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", violations={"header.filename": "at most 255 bytes"}
    )
    assert await askback("ingest", str(tmp_path)) == Finished(
        2, "0 ingested, 0 unchanged, 1 refused\n", "askback: a.md was refused: it takes at most 255 bytes\n"
    )


async def test_two_documents_of_one_name_are_refused_before_any_is_sent(
    askback: Run, services: Services, tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.md").write_text("words")
    finished = await askback("ingest", str(tmp_path))
    assert finished.code == 2
    assert "two documents of one name" in finished.err
    assert services.knowledge.parts == []


async def test_what_is_kept_is_listed_with_tabs_between(askback: Run, services: Services) -> None:
    services.sessions.sessions = [
        session_pb2.Session(session_id=f"s-{number}", title="How\tlong?", message_count=2) for number in range(3)
    ]
    services.hitl.tasks = [hitl_pb2.HitlTask(task_id="t-1", session_id="s-1", prompt="Which?", options=["A", "B"])]
    sessions, tasks = await asyncio.gather(askback("sessions"), askback("tasks"))
    assert [line.split("\t")[:3] for line in sessions.out.splitlines()] == [
        [f"s-{number}", "How long?", "2"] for number in range(3)
    ]
    assert tasks.out == "t-1\ts-1\tunspecified\tWhich? 1. A 2. B\n"


async def test_history_shows_who_said_what_and_what_it_cites(askback: Run, services: Services) -> None:
    answer = session_pb2.Message(
        position=2,
        type=session_pb2.MESSAGE_TYPE_AI,
        content="Two years [1].",
        status=session_pb2.MESSAGE_STATUS_STOPPED,
    )
    answer.rag_trace.retrieved_chunks.add(filename="warranty.md", page_number="2")
    question = session_pb2.Message(position=1, type=session_pb2.MESSAGE_TYPE_HUMAN, content="How \x1b[31mlong?")
    services.sessions.messages = [question, answer]
    lines = (await askback("history", "s-1")).out.splitlines()
    assert lines[0].startswith("1 you  ") and lines[1] == "How long?"
    assert lines[3].startswith("2 agent  ") and lines[3].endswith("  stopped")
    assert lines[4:6] == ["Two years [1].", "[1] warranty.md · p. 2"]


async def test_search_and_delete_say_what_they_found_and_did(askback: Run, services: Services) -> None:
    found, deleted = await asyncio.gather(askback("search", "warranty"), askback("delete", "s-1", "--yes"))
    assert found.out == "[1]  0.500  warranty.md · p. 2\nTwo years.\n"
    assert deleted.out == "deleted s-1 with 4 messages\n"
