"""The first of a user's sessions, as they are listed at one revision of the user's list."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from sys import getsizeof

from services.storage.store.encoded import Codec, EncodedSessions
from services.storage.store.results import SessionCursor, SessionIdPage, SessionPage, UserVersion

LIST_MAX_SESSIONS = 100
LIST_MAX_BYTES = 512 * 1024
"""As lists count them; the first session is held however large it is."""

_OBJECTS_BYTES = 1_024


@dataclass(frozen=True)
class SessionList:
    """The last changed first. A page that takes more than is held is answered with None."""

    user_id: str
    full: bool
    revision: int
    changes_time: datetime | None
    has_more: bool
    cursors: tuple[SessionCursor, ...]
    """Each session's place in the list."""
    parts: tuple[bytes, ...]

    @classmethod
    def of(cls, page: SessionPage, codec: Codec, *, user_id: str, full: bool, revision: int) -> "SessionList":
        """`revision` is one that the user's list was at before the page was read, or then."""
        return cls(
            user_id=user_id,
            full=full,
            revision=revision,
            changes_time=page.changes_time,
            has_more=page.next is not None,
            cursors=tuple(SessionCursor(session.update_time, session.session_id) for session in page.sessions),
            parts=tuple(codec.encode_session(session) for session in page.sessions),
        )

    def is_at(self, version: UserVersion) -> bool:
        # A question is no longer pending from its time on.
        return self.revision == version.revision and (self.changes_time is None or version.now < self.changes_time)

    @cached_property
    def memory_bytes(self) -> int:
        parts = sum(map(getsizeof, self.parts))
        cursors = sum(getsizeof(cursor.session_id) + 160 for cursor in self.cursors)
        return _OBJECTS_BYTES + 4 * len(self.user_id) + parts + cursors

    def page(self, page_size: int, codec: Codec) -> SessionPage | None:
        if not self._holds(page_size):
            return None
        sessions = EncodedSessions(self.parts[:page_size], codec)
        return SessionPage(sessions=sessions, next=self._next(page_size), changes_time=self.changes_time)

    def id_page(self, page_size: int) -> SessionIdPage | None:
        if not self._holds(page_size):
            return None
        ids = tuple(cursor.session_id for cursor in self.cursors[:page_size])
        return SessionIdPage(session_ids=ids, next=self._next(page_size))

    def _holds(self, page_size: int) -> bool:
        return page_size <= len(self.parts) or not self.has_more

    def _next(self, page_size: int) -> SessionCursor | None:
        if page_size < len(self.parts) or (page_size == len(self.parts) and self.has_more):
            return self.cursors[page_size - 1]
        return None
