"""A session's messages, page by page, in either direction."""

from typing import Any

import grpc
import pytest

from askback.storage.v1.session_pb2 import Message
from askback.storage.v1.session_service_pb2 import GetMessageRequest, ListMessagesRequest, ListMessagesResponse
from tests.integration.storage.harness import Storage, refused


async def _page(storage: Storage, user: str, **asked: Any) -> ListMessagesResponse:
    request = ListMessagesRequest(user_id=user, session_id="s", **asked)
    return await storage.sessions.ListMessages(request)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("page_size", [1, 3, 8, 1_000])
async def test_pages_hold_every_message_once_in_order(
    storage: Storage, user: str, page_size: int, descending: bool
) -> None:
    for n in range(4):
        await storage.turn(user, message=f"q{n}", answer=f"a{n}")
    positions: list[int] = []
    token = ""
    while True:
        page = await _page(storage, user, page_size=page_size, descending=descending, page_token=token)
        positions += [message.position for message in page.messages]
        assert len(page.messages) <= page_size
        assert page.revision == 8
        if not (token := page.next_page_token):
            break
    assert positions == (list(range(8, 0, -1)) if descending else list(range(1, 9)))


async def test_messages_that_come_between_pages_are_neither_lost_nor_repeated(
    storage: Storage, other_storage: Storage, user: str
) -> None:
    for _ in range(3):
        await storage.turn(user)
    up = await _page(storage, user, page_size=4)
    down = await _page(storage, user, page_size=4, descending=True)
    await other_storage.turn(user)
    further_up = await _page(other_storage, user, page_size=100, page_token=up.next_page_token)
    further_down = await _page(other_storage, user, page_token=down.next_page_token, descending=True)
    assert [message.position for message in further_up.messages] == [5, 6, 7, 8]
    assert [message.position for message in further_down.messages] == [2, 1]
    assert (up.revision, further_up.revision) == (6, 8)


async def test_a_page_size_of_zero_is_a_hundred_and_a_huge_one_is_lowered(storage: Storage, user: str) -> None:
    for _ in range(51):
        await storage.turn(user)
    page = await _page(storage, user)
    assert len(page.messages) == 100 and page.next_page_token
    page = await _page(storage, user, page_size=2**31 - 1)
    assert len(page.messages) == 102 and not page.next_page_token


@pytest.mark.parametrize("descending", [False, True])
async def test_pages_are_bounded_by_bytes_and_lose_nothing(storage: Storage, user: str, descending: bool) -> None:
    for _ in range(4):
        await storage.finish(await storage.begin(user), "x" * 1_048_576)
    seen, token, pages = [], "", 0
    while True:
        page = await _page(storage, user, descending=descending, page_token=token)
        assert 0 < page.ByteSize() < 4 * 1_024 * 1_024
        seen += [(message.position, len(message.content)) for message in page.messages]
        pages += 1
        if not (token := page.next_page_token):
            break
    assert pages > 1
    assert sorted(seen) == seen if not descending else sorted(seen, reverse=True) == seen
    assert {position: length for position, length in seen} == {
        position: 1_048_576 if position % 2 == 0 else len("a question") for position in range(1, 9)
    }


async def test_traces_are_left_out_where_asked(storage: Storage, user: str) -> None:
    reply = Message(content="x")
    reply.rag_trace.query = "q"
    finished = await storage.finish(await storage.begin(user), reply=reply)
    assert [m.HasField("rag_trace") for m in (await _page(storage, user)).messages] == [False, True]
    assert [m.HasField("rag_trace") for m in (await _page(storage, user, omit_traces=True)).messages] == [False, False]
    request = GetMessageRequest(user_id=user, session_id="s", message_id=finished.reply.message_id)
    assert (await storage.sessions.GetMessage(request)).message == finished.reply


async def test_an_unknown_message_is_not_found(storage: Storage, user: str) -> None:
    await storage.turn(user)
    request = GetMessageRequest(user_id=user, session_id="s", message_id="nothing")
    refusal = await refused(storage.sessions.GetMessage(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND")
    assert refusal.metadata == {"message_id": "nothing"}


async def test_a_token_of_another_query_is_refused(storage: Storage, user: str) -> None:
    for session_id in ("s", "t"):
        for _ in range(2):
            await storage.turn(user, session_id)
    token = (await _page(storage, user, page_size=1)).next_page_token
    others: list[dict[str, Any]] = [{"session_id": "t"}, {"session_id": "s", "descending": True}]
    for asked in others:
        request = ListMessagesRequest(user_id=user, page_token=token, **asked)
        refusal = await refused(storage.sessions.ListMessages(request))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")
    # How many, and whether with traces, may change from page to page.
    assert (await _page(storage, user, page_size=2, omit_traces=True, page_token=token)).messages[0].position == 2
