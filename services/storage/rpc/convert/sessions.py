"""Sessions named, listed, changed and deleted; what brings messages along is in messages.py."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from askback.storage.v1 import session_service_pb2
from services.runtime import page_token
from services.runtime.page_token import PagedQuery
from services.storage.rpc.checks import Checks
from services.storage.rpc.convert.fields import (
    MAX_TITLE_BYTES,
    by_number,
    expected_revision,
    request_hash,
    session_of,
)
from services.storage.store.commands import UpdateSession
from services.storage.store.results import SessionCursor

MAX_NOTE_BYTES = 32 * 1_024

_TITLE, _NOTE, _NOTE_POSITION = "title", "note", "note_through_position"
_EXPIRY, _METADATA = "expire_time", "metadata"
_CHANGEABLE = (_TITLE, _NOTE, _NOTE_POSITION, _EXPIRY, _METADATA)


_FIELD_NAME = re.compile(r"[a-z][a-z_.]{0,63}")


class SessionView(IntEnum):
    BASIC = 1
    FULL = 2
    ID = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSessions:
    query: PagedQuery
    page_size: int
    after: SessionCursor | None
    view: SessionView


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMessages:
    query: PagedQuery
    session_id: str
    page_size: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMessages:
    user_id: str
    session_id: str
    after_position: int
    expected_revision: int | None
    request_id: str
    request_hash: bytes


def session_name(request: session_service_pb2.GetSessionRequest) -> tuple[str, str]:
    """The user_id and session_id."""
    checks = Checks()
    name = session_of(checks, request)
    checks.done()
    return name


def load_session(request: session_service_pb2.LoadSessionRequest) -> tuple[str, str, int]:
    """The user_id, the session_id, and how many messages at most; 0: all."""
    checks = Checks()
    asked = *session_of(checks, request), checks.number("max_messages", request.max_messages, at_least=0)
    checks.done()
    return asked


def message_name(request: session_service_pb2.GetMessageRequest) -> tuple[str, str, str]:
    """The user_id, session_id and message_id."""
    checks = Checks()
    name = *session_of(checks, request), checks.name("message_id", request.message_id)
    checks.done()
    return name


def list_sessions(request: session_service_pb2.ListSessionsRequest) -> ListSessions:
    checks = Checks()
    query = PagedQuery("ListSessions", checks.name("user_id", request.user_id))
    page_size = checks.page_size(request.page_size)
    view = checks.choice("view", request.view or SessionView.BASIC, by_number(SessionView), otherwise=SessionView.BASIC)
    checks.done()
    after = SessionCursor(*page_token.decode(query, token, datetime, str)) if (token := request.page_token) else None
    return ListSessions(query=query, page_size=page_size, after=after, view=view)


def list_messages(request: session_service_pb2.ListMessagesRequest) -> ListMessages:
    checks = Checks()
    user_id, session_id = session_of(checks, request)
    page_size = checks.page_size(request.page_size)
    checks.done()
    query = PagedQuery("ListMessages", user_id, (session_id, request.descending))
    after = page_token.decode(query, request.page_token, int)[0] if request.page_token else None
    return ListMessages(query=query, session_id=session_id, page_size=page_size, after=after)


def update_session(request: session_service_pb2.UpdateSessionRequest) -> UpdateSession:
    """What the mask names is changed; without one, what is set."""
    checks = Checks()
    session = request.session
    changed = _named_by_mask(checks, request) if request.update_mask.paths else _set_in(request)
    if _NOTE_POSITION in changed and _NOTE not in changed:
        checks.refuse("session.note_through_position", "must come with the note that goes through it")
    updated = UpdateSession(
        user_id=checks.name("session.user_id", session.user_id),
        session_id=checks.name("session.session_id", session.session_id),
        title=checks.text("session.title", session.title, at_most=MAX_TITLE_BYTES) if _TITLE in changed else None,
        note=checks.text("session.note", session.note, at_most=MAX_NOTE_BYTES) if _NOTE in changed else None,
        note_through_position=checks.number("session.note_through_position", session.note_through_position, at_least=0),
        sets_expire_time=_EXPIRY in changed,
        expire_time=(
            checks.time("session.expire_time", session.expire_time)
            if _EXPIRY in changed and session.HasField("expire_time")
            else None
        ),
        metadata=checks.metadata("session.metadata", session.metadata) if _METADATA in changed else None,
        expected_revision=expected_revision(checks, request),
        request_id=checks.optional_name("request_id", request.request_id),
        request_hash=request_hash(request) if request.request_id else b"",
    )
    if not changed:
        checks.refuse("session", "must set what is to change, or update_mask must name it")
    checks.done()
    return updated


def _named_by_mask(checks: Checks, request: session_service_pb2.UpdateSessionRequest) -> set[str]:
    for path in request.update_mask.paths:
        if path not in _CHANGEABLE:
            # What is no name of a field may be anything, and is not repeated.
            named = path if _FIELD_NAME.fullmatch(path) else "a path"
            checks.refuse("update_mask", f"may name {', '.join(_CHANGEABLE)}; not {named}")
    return set(request.update_mask.paths)


def _set_in(request: session_service_pb2.UpdateSessionRequest) -> set[str]:
    return {field.name for field, _ in request.session.ListFields() if field.name in _CHANGEABLE}


def delete_messages(request: session_service_pb2.DeleteMessagesRequest) -> DeleteMessages:
    checks = Checks()
    user_id, session_id = session_of(checks, request)
    asked = DeleteMessages(
        user_id=user_id,
        session_id=session_id,
        after_position=checks.number("after_position", request.after_position, at_least=0),
        expected_revision=expected_revision(checks, request),
        request_id=checks.optional_name("request_id", request.request_id),
        request_hash=request_hash(request),
    )
    checks.done()
    return asked


def delete_session(request: session_service_pb2.DeleteSessionRequest) -> tuple[str, str, str, bytes]:
    """The user_id, session_id and request_id, and the request's hash."""
    checks = Checks()
    asked = *session_of(checks, request), checks.optional_name("request_id", request.request_id)
    checks.done()
    return *asked, request_hash(request)


def delete_user_data(request: session_service_pb2.DeleteUserDataRequest) -> tuple[str, str, bytes]:
    """The user_id and request_id, and the request's hash."""
    checks = Checks()
    asked = checks.name("user_id", request.user_id), checks.optional_name("request_id", request.request_id)
    checks.done()
    return *asked, request_hash(request)
