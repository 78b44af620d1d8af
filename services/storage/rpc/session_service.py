from typing import Any

import grpc.aio

from askback.storage.v1 import session_service_pb2 as wire
from askback.storage.v1.session_service_pb2_grpc import SessionServiceServicer
from services.storage.rpc import convert, encoding, replies
from services.storage.rpc.convert import SessionView
from services.storage.store.base import ConversationStorage

# What callers take without raising their own limit: 4 MiB, with room for what the store does not count.
PAGE_MAX_BYTES = 3 * 1_024 * 1_024
# A reply may hold 16 MiB, and the session beside the messages is part of it.
LOAD_MAX_BYTES = 15 * 1_024 * 1_024

Context = grpc.aio.ServicerContext[Any, Any]


class SessionServicer(SessionServiceServicer):
    """Sessions and their messages."""

    def __init__(self, store: ConversationStorage):
        self._store = store

    async def SaveSession(self, request: wire.SaveSessionRequest, context: Context) -> wire.SaveSessionResponse:
        session = await self._store.save_session(await convert.save_session(request))
        return wire.SaveSessionResponse(session=replies.session(session))

    async def AppendMessages(
        self, request: wire.AppendMessagesRequest, context: Context
    ) -> wire.AppendMessagesResponse:
        appended = await self._store.append_messages(await convert.append_messages(request))
        return await replies.appended_messages(appended)

    # Those that answer with many messages or sessions write their reply themselves.

    async def LoadSession(  # type: ignore[override]
        self, request: wire.LoadSessionRequest, context: Context
    ) -> bytes:
        user_id, session_id, max_messages = convert.load_session(request)
        loaded = await self._store.load_session(
            user_id,
            session_id,
            max_messages=max_messages,
            include_traces=request.include_traces,
            max_bytes=LOAD_MAX_BYTES,
        )
        return await encoding.loaded_session(loaded)

    async def GetSession(self, request: wire.GetSessionRequest, context: Context) -> wire.GetSessionResponse:
        session = await self._store.get_session(*convert.session_name(request))
        return wire.GetSessionResponse(session=replies.session(session))

    async def ListSessions(  # type: ignore[override]
        self, request: wire.ListSessionsRequest, context: Context
    ) -> bytes:
        asked = convert.list_sessions(request)
        user_id, page_size, after = asked.query.user_id, asked.page_size, asked.after
        if asked.view is SessionView.ID:
            ids = await self._store.list_session_ids(user_id, page_size=page_size, after=after)
            return encoding.session_id_page(asked.query, ids)
        page = await self._store.list_sessions(
            user_id, page_size=page_size, after=after, full=asked.view is SessionView.FULL, max_bytes=PAGE_MAX_BYTES
        )
        return await encoding.session_page(asked.query, page)

    async def ListMessages(  # type: ignore[override]
        self, request: wire.ListMessagesRequest, context: Context
    ) -> bytes:
        asked = convert.list_messages(request)
        page = await self._store.list_messages(
            asked.query.user_id,
            asked.session_id,
            page_size=asked.page_size,
            after=asked.after,
            descending=request.descending,
            include_traces=not request.omit_traces,
            max_bytes=PAGE_MAX_BYTES,
        )
        return await encoding.message_page(asked.query, page)

    async def GetMessage(self, request: wire.GetMessageRequest, context: Context) -> wire.GetMessageResponse:
        message = await self._store.get_message(*convert.message_name(request))
        return wire.GetMessageResponse(message=replies.message(message))

    async def DeleteMessages(
        self, request: wire.DeleteMessagesRequest, context: Context
    ) -> wire.DeleteMessagesResponse:
        asked = convert.delete_messages(request)
        deleted = await self._store.delete_messages(
            asked.user_id,
            asked.session_id,
            after_position=asked.after_position,
            expected_revision=asked.expected_revision,
            request_id=asked.request_id,
            request_hash=asked.request_hash,
        )
        return wire.DeleteMessagesResponse(
            session=replies.session(deleted.session), deleted_message_count=deleted.count
        )

    async def UpdateSession(self, request: wire.UpdateSessionRequest, context: Context) -> wire.UpdateSessionResponse:
        session = await self._store.update_session(convert.update_session(request))
        return wire.UpdateSessionResponse(session=replies.session(session))

    async def DeleteSession(self, request: wire.DeleteSessionRequest, context: Context) -> wire.DeleteSessionResponse:
        user_id, session_id, request_id, request_hash = convert.delete_session(request)
        deleted = await self._store.delete_session(
            user_id, session_id, request_id=request_id, request_hash=request_hash
        )
        return wire.DeleteSessionResponse(session_id=session_id, deleted_message_count=deleted)

    async def DeleteUserData(
        self, request: wire.DeleteUserDataRequest, context: Context
    ) -> wire.DeleteUserDataResponse:
        user_id, request_id, request_hash = convert.delete_user_data(request)
        deleted = await self._store.delete_user_data(user_id, request_id=request_id, request_hash=request_hash)
        return wire.DeleteUserDataResponse(deleted_session_count=deleted)
