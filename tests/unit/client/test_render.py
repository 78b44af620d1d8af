import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from askback.agent.v1 import chat_pb2
from askback.cli.citations import cited, source
from askback.cli.conversation import picked
from askback.cli.failures import UsageFault
from askback.cli.printable import printable
from askback.cli.render import TurnRenderer
from askback.cli.wording import CHINESE, wording_for
from askback.cli.wrapping import WrappedText
from askback.rag.v1 import hitl_pb2, trace_pb2
from askback.storage.v1 import run_pb2


def plain() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=False, width=80), out


def content(text: str) -> chat_pb2.ChatEvent:
    return chat_pb2.ChatEvent(content=chat_pb2.ContentDelta(text=text))


def finished(status: run_pb2.RunStatus.ValueType) -> chat_pb2.ChatEvent:
    return chat_pb2.ChatEvent(finished=chat_pb2.RunFinished(status=status))


def test_what_was_seen_of_a_turn_can_be_read_afterwards() -> None:
    console, _ = plain()
    renderer = TurnRenderer(console)
    renderer.event(chat_pb2.ChatEvent(run_id="r", started=chat_pb2.RunStarted(session_id="s")))
    renderer.event(content("two "))
    renderer.event(content("years"))
    renderer.event(chat_pb2.ChatEvent(rag_trace=trace_pb2.RagTrace(query="q")))
    renderer.event(finished(run_pb2.RUN_STATUS_COMPLETED))
    assert (renderer.run_id, renderer.session_id, renderer.text) == ("r", "s", "two years")
    assert renderer.trace is not None and renderer.trace.query == "q"
    assert renderer.finished is not None and renderer.task is None


def test_an_event_of_a_kind_that_is_not_known_is_passed_over() -> None:
    console, out = plain()
    renderer = TurnRenderer(console)
    renderer.event(chat_pb2.ChatEvent.FromString(b"\xa2\x06\x00"))
    renderer.event(chat_pb2.ChatEvent(heartbeat=chat_pb2.Heartbeat()))
    assert out.getvalue() == ""


def test_compacted_events_put_their_text_in_the_place_of_what_was_joined() -> None:
    console, _ = plain()
    renderer = TurnRenderer(console)
    renderer.event(content("lost"))
    renderer.event(chat_pb2.ChatEvent(compacted=chat_pb2.EventsCompacted(through_sequence=9, reply_text="kept ")))
    renderer.event(content("text"))
    assert renderer.text == "kept text"


@pytest.mark.parametrize(
    ("status", "said"), [(run_pb2.RUN_STATUS_CANCELLED, "stopped"), (run_pb2.RUN_STATUS_FAILED, "cut short")]
)
def test_a_turn_that_ends_early_says_that_its_text_is_kept(status: run_pb2.RunStatus.ValueType, said: str) -> None:
    console, out = plain()
    renderer = TurnRenderer(console)
    renderer.event(content("two ye"))
    renderer.event(finished(status))
    assert out.getvalue().splitlines()[-1].startswith(said)


def test_steps_after_text_begin_on_a_line_of_their_own() -> None:
    console, out = plain()
    renderer = TurnRenderer(console)
    renderer.event(content("Let me look."))
    renderer.event(chat_pb2.ChatEvent(rag_step=chat_pb2.RagStep(icon="🔎", label="Searching", elapsed_ms=5)))
    assert out.getvalue().splitlines() == ["", "Let me look.", "      5 ms  🔎 Searching"]


def test_a_terminal_shows_each_step_once_the_tree_is_done() -> None:
    out = io.StringIO()
    renderer = TurnRenderer(Console(file=out, force_terminal=True, width=80, height=50, color_system=None))
    for number in range(1, 4):
        step = chat_pb2.RagStep(icon="🔎", label=f"Step {number}", elapsed_ms=number, group="1", group_label="How?")
        renderer.event(chat_pb2.ChatEvent(rag_step=step))
    renderer.event(finished(run_pb2.RUN_STATUS_COMPLETED))
    last_frame = out.getvalue().rpartition("\x1b[1A")[2]
    assert [last_frame.count(f"Step {number}") for number in range(1, 4)] == [1, 1, 1]


def test_text_of_others_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\x1b]0;title\x07c\r\x9bd\n\te") == "ab]0;titlecd\n\te"
    joiners = "👩‍👩‍👧 می‌خواهم"
    assert printable(joiners) == joiners


def test_only_what_the_text_cites_is_listed_once_and_in_order() -> None:
    chunks = [trace_pb2.RetrievedChunk(filename=f"{number}.md") for number in range(1, 5)]
    found = cited("So it is [3][1], and [1, 4]; not [9], [0] or [x].", chunks)
    assert [(number, chunk.filename) for number, chunk in found] == [(1, "1.md"), (3, "3.md"), (4, "4.md")]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("Plans › Forest\n\nUp to 40 sensors.", "plans.md · Plans › Forest"),
        ("## What is a plan?\n\nIt is a price.", "plans.md · What is a plan?"),
        ("A plan is a price.\n\nIt has a name.", "plans.md"),
        ("Plans\nForest", "plans.md"),
        ("", "plans.md"),
    ],
)
def test_the_headings_above_a_passage_tell_it_from_others_of_its_file(text: str, where: str) -> None:
    assert source(trace_pb2.RetrievedChunk(filename="plans.md", text=text)) == where


def test_icons_are_two_cells_wide_with_and_without_a_variation_selector() -> None:
    console, out = plain()
    renderer = TurnRenderer(console)
    for icon in ("⚖\ufe0f", "🔎"):
        renderer.event(chat_pb2.ChatEvent(rag_step=chat_pb2.RagStep(icon=icon, label="Step", elapsed_ms=5)))
    lines = out.getvalue().splitlines()
    assert [cell_len(line) for line in lines] == [cell_len("      5 ms  🔎 Step")] * 2
    assert "\ufe0f" not in out.getvalue()


def with_options(*options: str) -> hitl_pb2.HitlTask:
    return hitl_pb2.HitlTask(prompt="Which?", options=options)


@pytest.mark.parametrize(
    ("words", "answer"), [("2", "B"), (" 1 ", "A"), ("the old one", "the old one"), ("²", "²"), ("-1", "-1")]
)
def test_a_number_picks_an_option_and_other_words_are_the_answer(words: str, answer: str) -> None:
    assert picked(words, with_options("A", "B")) == answer


@pytest.mark.parametrize("words", ["0", "3", "9" * 5000])
def test_a_number_that_no_option_has_is_refused(words: str) -> None:
    with pytest.raises(UsageFault, match="choose 1 to 2, or answer in words"):
        picked(words, with_options("A", "B"))


def test_where_there_is_nothing_to_pick_a_number_is_the_answer() -> None:
    assert picked("7", with_options()) == "7"


@pytest.mark.parametrize(
    ("question", "chinese"),
    [
        ("请问您指的是哪一个？", True),
        ("文档对“Canopy”有不同的说明，请问您指的是哪一个？", True),
        ("Which one do you mean, 雪松 or 白桦?", False),
        ("どの製品ですか？", False),
        ("", False),
    ],
)
def test_the_prompt_speaks_the_language_of_the_question(question: str, chinese: bool) -> None:
    assert (wording_for(question) is CHINESE) is chinese


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_text_is_wrapped_the_same_however_it_is_cut(size: int) -> None:
    text = "The warranty of the Atlas line is two years [1].\n\n    code stays\n保修期自交付之日起计算，为期两年。"
    written: list[str] = []
    wrapped = WrappedText(written.append, width=20)
    for start in range(0, len(text), size):
        wrapped.feed(text[start : start + size])
    wrapped.finish()
    assert "".join(written) == (
        "The warranty of the\nAtlas line is two\nyears [1].\n\n    code stays\n保修期自交付之日起计\n算，为期两年。\n"
    )
