"""A question, a question back, an answer: over real channels, from real documents."""

import pytest

from askback.client import HitlTaskNotPending, HitlTaskPending
from askback.rag.v1 import hitl_pb2
from askback.storage.v1 import run_pb2, session_pb2
from tests.e2e.harness import (
    System,
    chat,
    cited_sentences,
    kinds,
    plain,
    step_kinds,
    text_of,
    trace_of,
)

PLAIN = "How many requests per minute does API v3 allow?"
OPEN = "How do I reset the admin PIN?"
OPEN_ZH = "默认上报间隔是多少？"


async def test_an_answer_is_streamed_cited_and_stored(system: System, user: str) -> None:
    events = await chat(system.agent, user_id=user, session_id="s", message=PLAIN)

    assert kinds(events)[:2] == ["started", "titled"]
    assert kinds(events).count("finished") == 1
    assert kinds(events)[-1] == "finished"
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert {event.run_id for event in events} == {events[0].run_id}
    assert "600 requests per minute" in text_of(events)
    listed = await system.storage.list_messages(user_id=user, session_id="s")
    question, answer = listed.messages
    assert question.content == PLAIN
    assert (question.position, answer.position) == (1, 2)
    assert answer.content == text_of(events)
    assert answer.rag_trace == trace_of(events)
    finished = events[-1].finished
    assert finished.status == run_pb2.RUN_STATUS_COMPLETED
    assert (finished.ai_position, finished.ai_message_id) == (2, answer.message_id)
    assert finished.session_revision == listed.revision


async def test_every_sentence_cites_a_chunk_that_holds_it(
    system: System, user: str, questions: list[dict[str, object]]
) -> None:
    answered = 0
    for question in (q for q in questions if q["kind"] == "plain"):
        events = await chat(system.agent, user_id=user, message=str(question["question"]))
        if events[-1].finished.status != run_pb2.RUN_STATUS_COMPLETED:
            continue
        chunks = trace_of(events).retrieved_chunks
        if not chunks:
            continue
        answered += 1
        for sentence, numbers in cited_sentences(text_of(events)):
            assert any(plain(sentence) in plain(chunks[number - 1].text) for number in numbers), sentence
    assert answered >= 12


async def test_the_question_is_stored_before_the_first_event(system: System, user: str) -> None:
    async with system.agent.stream_chat(user_id=user, session_id="s", message=PLAIN) as stream:
        first = await anext(aiter(stream))
        assert first.HasField("started")
        stored = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert stored[0].content == PLAIN
    assert (stored[0].position, stored[0].message_id) == (first.started.human_position, first.started.human_message_id)


async def test_a_question_that_leaves_it_open_is_asked_back(system: System, user: str) -> None:
    events = await chat(system.agent, user_id=user, session_id="s", message=OPEN)

    assert text_of(events) == ""
    assert kinds(events)[-3:] == ["rag_trace", "hitl_request", "finished"]
    task = events[-2].hitl_request
    assert set(task.options) == {"Alder", "Birch", "Cedar"}
    assert task.original_question == OPEN
    assert events[-1].finished.status == run_pb2.RUN_STATUS_AWAITING_INPUT
    assert len(set(step_kinds(events))) >= 6
    assert "ASK_BACK" in step_kinds(events)
    messages = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert [message.content for message in messages] == [OPEN, task.prompt]
    assert messages[1].status == session_pb2.MESSAGE_STATUS_AWAITING_INPUT
    assert await system.storage.get_hitl_task(user_id=user, task_id=task.task_id) == task
    session = await system.storage.get_session(user_id=user, session_id="s")
    assert session.pending_hitl_task_id == task.task_id


async def test_an_answer_resumes_once_and_is_streamed_and_stored(system: System, user: str) -> None:
    asked = await chat(system.agent, user_id=user, session_id="s", message=OPEN)
    task = asked[-2].hitl_request

    events = await chat(system.agent, user_id=user, session_id="s", message="Cedar", answers_task_id=task.task_id)

    assert events[0].started.answered_task_id == task.task_id
    assert "pin.dat" in text_of(events)
    assert "RESUME" in step_kinds(events)
    assert "CLASSIFY" not in step_kinds(events)
    assert step_kinds(events).count("RESUME") == 1
    trace = trace_of(events)
    assert trace.hitl.resumed
    assert trace.hitl.answer == "Cedar"
    assert trace.hitl.resumed_from == task.resume_state
    messages = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert [message.position for message in messages] == [1, 2, 3, 4]
    assert [message.HasField("rag_trace") for message in messages] == [False, True, False, True]
    assert messages[3].content == text_of(events)
    answered = await system.storage.get_hitl_task(user_id=user, task_id=task.task_id)
    assert answered.state == hitl_pb2.HITL_STATE_ANSWERED
    assert (answered.answer, answered.answered_by_run_id) == ("Cedar", events[0].run_id)


async def test_the_next_message_answers_the_question_that_waits(system: System, user: str) -> None:
    asked = await chat(system.agent, user_id=user, session_id="s", message=OPEN)
    events = await chat(system.agent, user_id=user, session_id="s", message="Birch")
    assert events[0].started.answered_task_id == asked[-2].hitl_request.task_id
    assert "magnet" in text_of(events)


async def test_a_chinese_question_gets_chinese_steps_and_a_chinese_question_back(system: System, user: str) -> None:
    events = await chat(system.agent, user_id=user, session_id="s", message=OPEN_ZH)

    task = events[-2].hitl_request
    labels = [event.rag_step.label for event in events if event.HasField("rag_step")]
    assert all(any("\u4e00" <= character <= "\u9fff" for character in label) for label in labels)
    assert set(task.options) == {"桤木", "白桦", "雪松"}
    assert any("\u4e00" <= character <= "\u9fff" for character in task.prompt)
    answered = await chat(system.agent, user_id=user, session_id="s", message="雪松")
    assert "雪松系列的默认上报间隔为 2 分钟" in text_of(answered)


async def test_a_question_that_the_documents_do_not_answer_is_told_so(system: System, user: str) -> None:
    events = await chat(system.agent, user_id=user, message="Who won the chess world championship in 1972?")
    assert events[-1].finished.status == run_pb2.RUN_STATUS_COMPLETED
    assert "NO_KNOWLEDGE" in step_kinds(events)
    assert list(trace_of(events).retrieved_chunks) == []
    assert text_of(events)


async def test_chat_tells_the_same_at_once(system: System, user: str) -> None:
    response = await system.agent.chat(user_id=user, session_id="s", message=OPEN)
    assert response.hitl_request.prompt == response.response
    assert response.finished.status == run_pb2.RUN_STATUS_AWAITING_INPUT
    answered = await system.agent.chat(
        user_id=user, session_id="s", message="Cedar", answers_task_id=response.hitl_request.task_id
    )
    assert "pin.dat" in answered.response
    [*_, stored] = (await system.storage.list_messages(user_id=user, session_id="s")).messages
    assert (stored.content, stored.rag_trace) == (answered.response, answered.rag_trace)


async def test_a_question_is_consumed_once(system: System, user: str) -> None:
    asked = await chat(system.agent, user_id=user, session_id="s", message=OPEN)
    task_id = asked[-2].hitl_request.task_id
    await chat(system.agent, user_id=user, session_id="s", message="Cedar", answers_task_id=task_id)
    with pytest.raises(HitlTaskNotPending) as refused:
        await chat(system.agent, user_id=user, session_id="s", message="Birch", answers_task_id=task_id)
    assert refused.value.metadata["state"] == "ANSWERED"
    assert len((await system.storage.list_messages(user_id=user, session_id="s")).messages) == 4


async def test_a_caller_says_what_a_message_means_while_a_question_waits(system: System, user: str) -> None:
    asked = await chat(system.agent, user_id=user, session_id="s", message=OPEN)
    task_id = asked[-2].hitl_request.task_id
    with pytest.raises(HitlTaskPending):
        await chat(system.agent, user_id=user, session_id="s", message=PLAIN, pending_hitl_policy="REJECT")
    events = await chat(system.agent, user_id=user, session_id="s", message=PLAIN, pending_hitl_policy="REPLACE")
    assert events[0].started.answered_task_id == ""
    assert "600 requests per minute" in text_of(events)
    task = await system.storage.get_hitl_task(user_id=user, task_id=task_id)
    assert task.state == hitl_pb2.HITL_STATE_CANCELLED


async def test_a_session_is_made_where_none_is_named(system: System, user: str) -> None:
    events = await chat(system.agent, user_id=user, message=PLAIN)
    session_id = events[0].started.session_id
    session = await system.storage.get_session(user_id=user, session_id=session_id)
    assert session.title == events[1].titled.title
    assert PLAIN.startswith(session.title)
    assert session.message_count == 2
