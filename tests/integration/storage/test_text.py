"""Text comes back as it went, byte for byte, from every field that holds a user's or a model's words."""

import pytest
from google.protobuf.json_format import MessageToDict

from askback.rag.v1 import trace_pb2
from askback.storage.v1.run_pb2 import RUN_STATUS_AWAITING_INPUT
from askback.storage.v1.session_pb2 import Message
from askback.storage.v1.session_service_pb2 import GetSessionRequest, LoadSessionRequest
from tests.integration.storage.harness import Storage, draft

TEXTS = {
    "emoji of several characters": (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 "
        "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f44d\U0001f3fd"
    ),
    "Persian with its joiner": "می\u200cخواهم کتاب\u200cها را بخوانم",
    "Indic conjuncts": "क\u094d\u200dष श्री തമിഴ് ക\u0d4d\u200c",
    "bidirectional marks": "\u202bעברית\u202c \u2067x\u2069 \u200e\u200f",
    "decomposed and composed": "e\u0301 é \u1112\u1161\u11ab 한",
    "control characters but NUL": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f",
    "line and paragraph separators": "a\r\nb\rc\u2028d\u2029e\u0085f",
    "noncharacters and the last planes": "\ufeff\ufffd\ufffe\uffff\U000e0041\U0010ffff",
    "what quoting gets wrong": """'";--\\ %s :name {0} $1 \\u0000 \\x00 E'\\\\' """,
    "blanks at both ends": " \t a \u3000 ",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_text_round_trips(storage: Storage, other_storage: Storage, user: str, text: str) -> None:
    begun = await storage.begin(user, message=text, title_if_new=text)
    trace = trace_pb2.RagTrace(query=text, retrieved_chunks=[trace_pb2.RetrievedChunk(filename="f" + text, text=text)])
    finished = await storage.finish(
        begun,
        reply=Message(content=text, rag_trace=trace),
        status=RUN_STATUS_AWAITING_INPUT,
        opened_task=draft(
            original_question=text,
            prompt=text,
            options=[text],
            answers=[text],
            resume_state=trace_pb2.HitlResumeState(question=text, sub_questions=[text]),
        ),
        metadata={text: [text, {text: text}]},
    )
    session = (await other_storage.sessions.GetSession(GetSessionRequest(user_id=user, session_id="s"))).session
    assert session == finished.session
    assert session.title == text
    assert MessageToDict(session.metadata) == {text: [text, {text: text}]}
    loaded = await other_storage.sessions.LoadSession(
        LoadSessionRequest(user_id=user, session_id="s", include_traces=True)
    )
    assert [message.content.encode() for message in loaded.messages] == [text.encode()] * 2
    assert loaded.messages[1].rag_trace == trace
    task = (await other_storage.begin(user, message=text)).claimed_task
    assert (task.original_question, task.prompt, task.options[0], task.answers[0]) == (text,) * 4
    assert (task.resume_state.question, list(task.resume_state.sub_questions)) == (text, [text])


@pytest.mark.parametrize(
    "name", ["a:b", "a/b%2Fc", "کتاب\u200cها", "क्‍ष", "\U0001f468\u200d\U0001f469", "'; --", " ", "..", "A", "a"]
)
async def test_ids_of_any_text_name_sessions_of_their_own(storage: Storage, user: str, name: str) -> None:
    begun = await storage.begin(f"{user}{name}", name, request_id=name, holder_id=name)
    finished = await storage.finish(begun, reply=Message(content="x", message_id=name))
    assert (finished.session.session_id, finished.reply.message_id) == (name, name)
    again = await storage.begin(f"{user}{name}", name, request_id=name, holder_id=name)
    assert again.already_begun
