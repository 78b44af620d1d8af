"""SessionService: sessions and their messages."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from askback.client.channel import Metadata, ServiceClient, new_request_id
from askback.client.paging import all_items
from askback.client.wire import EnumValue, build
from askback.storage.v1 import session_pb2
from askback.storage.v1 import session_service_pb2 as wire
from askback.storage.v1.session_service_pb2_grpc import SessionServiceStub

if TYPE_CHECKING:
    from askback.storage.v1.session_service_pb2_grpc import SessionServiceAsyncStub

MessageLike = session_pb2.Message | Mapping[str, Any]

# It deletes in batches for as long as the call lasts.
_DELETE_USER_TIMEOUT_S = 60.0


class SessionCalls(ServiceClient):
    """The calls of SessionService.

    Messages may be given as mappings of their fields: `{"type": "HUMAN", "content": "…"}`. Every write
    gets a `request_id` unless one is given, so that it may be sent again without harm.
    """

    @property
    def _sessions(self) -> "SessionServiceAsyncStub":
        return self._stub(SessionServiceStub)

    async def save_session(
        self,
        *,
        user_id: str,
        session_id: str,
        messages: Sequence[MessageLike],
        session_metadata: Mapping[str, Any] | None = None,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> session_pb2.Session:
        """Replaces the whole history and merges the metadata; a None value removes its key."""
        request = build(
            wire.SaveSessionRequest,
            user_id=user_id,
            session_id=session_id,
            messages=messages,
            metadata=session_metadata,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
        )
        response = await self._answer(self._sessions.SaveSession, request, timeout, metadata)
        return response.session

    async def append_messages(
        self,
        *,
        user_id: str,
        session_id: str,
        messages: Sequence[MessageLike],
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.AppendMessagesResponse:
        """Adds messages to the end; the first one makes the session."""
        request = build(
            wire.AppendMessagesRequest,
            user_id=user_id,
            session_id=session_id,
            messages=messages,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
        )
        return await self._answer(self._sessions.AppendMessages, request, timeout, metadata)

    async def load_session(
        self,
        *,
        user_id: str,
        session_id: str,
        max_messages: int = 0,
        include_traces: bool = False,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.LoadSessionResponse:
        """The newest messages, oldest first, together with the session."""
        request = build(
            wire.LoadSessionRequest,
            user_id=user_id,
            session_id=session_id,
            max_messages=max_messages,
            include_traces=include_traces,
        )
        return await self._answer(self._sessions.LoadSession, request, timeout, metadata)

    async def get_session(
        self,
        *,
        user_id: str,
        session_id: str,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> session_pb2.Session:
        request = build(
            wire.GetSessionRequest,
            user_id=user_id,
            session_id=session_id,
        )
        response = await self._answer(self._sessions.GetSession, request, timeout, metadata)
        return response.session

    async def list_sessions(
        self,
        *,
        user_id: str,
        page_size: int = 0,
        page_token: str = "",
        view: EnumValue = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.ListSessionsResponse:
        """One page of a user's sessions, the last changed first."""
        request = build(
            wire.ListSessionsRequest,
            user_id=user_id,
            page_size=page_size,
            page_token=page_token,
            view=view,
        )
        return await self._answer(self._sessions.ListSessions, request, timeout, metadata)

    async def list_messages(
        self,
        *,
        user_id: str,
        session_id: str,
        page_size: int = 0,
        page_token: str = "",
        descending: bool = False,
        omit_traces: bool = False,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.ListMessagesResponse:
        """One page of a session's messages, oldest first unless `descending`."""
        request = build(
            wire.ListMessagesRequest,
            user_id=user_id,
            session_id=session_id,
            page_size=page_size,
            page_token=page_token,
            descending=descending,
            omit_traces=omit_traces,
        )
        return await self._answer(self._sessions.ListMessages, request, timeout, metadata)

    async def get_message(
        self,
        *,
        user_id: str,
        session_id: str,
        message_id: str,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> session_pb2.Message:
        """One message, with its trace."""
        request = build(
            wire.GetMessageRequest,
            user_id=user_id,
            session_id=session_id,
            message_id=message_id,
        )
        response = await self._answer(self._sessions.GetMessage, request, timeout, metadata)
        return response.message

    async def delete_messages(
        self,
        *,
        user_id: str,
        session_id: str,
        after_position: int,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.DeleteMessagesResponse:
        """Takes back the messages after a position; 0 takes back all."""
        request = build(
            wire.DeleteMessagesRequest,
            user_id=user_id,
            session_id=session_id,
            after_position=after_position,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
        )
        return await self._answer(self._sessions.DeleteMessages, request, timeout, metadata)

    async def update_session(
        self,
        *,
        user_id: str,
        session_id: str,
        title: str | None = None,
        note: str | None = None,
        note_through_position: int | None = None,
        expire_time: datetime | None = None,
        session_metadata: Mapping[str, Any] | None = None,
        update_mask: Sequence[str] | None = None,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> session_pb2.Session:
        """Changes what is not None; metadata is merged, and a None value in it removes its key.

        `update_mask` says by name what to change instead: `["expire_time"]` alone takes the expiry away.
        """
        changes = {"title": title, "note": note, "expire_time": expire_time, "metadata": session_metadata}
        request = build(
            wire.UpdateSessionRequest,
            session={
                "user_id": user_id,
                "session_id": session_id,
                "note_through_position": note_through_position,
                **changes,
            },
            update_mask=[name for name, value in changes.items() if value is not None]
            if update_mask is None
            else update_mask,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
        )
        response = await self._answer(self._sessions.UpdateSession, request, timeout, metadata)
        return response.session

    async def delete_session(
        self,
        *,
        user_id: str,
        session_id: str,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> wire.DeleteSessionResponse:
        """Deletes the session with all that belongs to it."""
        request = build(
            wire.DeleteSessionRequest,
            user_id=user_id,
            session_id=session_id,
            request_id=request_id or new_request_id(),
        )
        return await self._answer(self._sessions.DeleteSession, request, timeout, metadata)

    async def delete_user_data(
        self,
        *,
        user_id: str,
        request_id: str | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> int:
        """Deletes all that is kept of a user, and says how many sessions; cut short, it is called again."""
        request = build(
            wire.DeleteUserDataRequest,
            user_id=user_id,
            request_id=request_id or new_request_id(),
        )
        response = await self._answer(
            self._sessions.DeleteUserData, request, timeout, metadata, default_timeout=_DELETE_USER_TIMEOUT_S
        )
        return response.deleted_session_count

    def sessions(
        self,
        *,
        user_id: str,
        page_size: int = 0,
        view: EnumValue = "",
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> AsyncIterator[session_pb2.Session]:
        """All of a user's sessions, page by page; `timeout` is for each page."""
        return all_items(
            lambda token: self.list_sessions(
                user_id=user_id,
                page_size=page_size,
                page_token=token,
                view=view,
                timeout=timeout,
                metadata=metadata,
            ),
            lambda page: page.sessions,
        )

    def messages(
        self,
        *,
        user_id: str,
        session_id: str,
        page_size: int = 0,
        descending: bool = False,
        omit_traces: bool = False,
        timeout: float | None = None,
        metadata: Metadata | None = None,
    ) -> AsyncIterator[session_pb2.Message]:
        """All of a session's messages, page by page; `timeout` is for each page."""
        return all_items(
            lambda token: self.list_messages(
                user_id=user_id,
                session_id=session_id,
                page_size=page_size,
                page_token=token,
                descending=descending,
                omit_traces=omit_traces,
                timeout=timeout,
                metadata=metadata,
            ),
            lambda page: page.messages,
        )
