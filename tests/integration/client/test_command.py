"""The `askback` command with nobody at a terminal."""

import asyncio
import json
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import grpc
import pytest

from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import run_service_pb2, session_pb2
from tests.integration.client.command import PATIENCE_S, Finished, Run, chat_requests, environment
from tests.integration.client.scripted import Failure, Services, answered_turn, question_back


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


async def test_a_folder_is_ingested_with_its_documents_alone(askback: Run, services: Services, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.md", "b.png", "deep/c.TXT"):
        (tmp_path / name).write_text("words")
    finished = await askback("ingest", str(tmp_path), "--collection", "manuals")
    assert (finished.code, finished.out) == (
        0,
        "a.md: 3 chunks\nc.TXT: 3 chunks\n2 ingested, 0 unchanged, 0 refused\n"
        "1 passed over: only .docx, .htm, .html, .md, .pdf, .txt are read from a folder\n",
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
