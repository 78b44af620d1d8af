"""Google ADK's sessions in a database: a row for each event, checked against the session's last change.

Appending takes the session object that a turn has read before; it is kept here, and that read is not counted.
Sessions are filled by inserting the service's own rows in bulk, since it takes one event a transaction.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.schemas.v1 import StorageEvent
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncSession

from benchmarks.material import NEWEST, SessionSet, Turn, turn
from benchmarks.measure import expect
from benchmarks.subjects.base import CONNECTIONS, Subject, Where, postgres_url

APP, AGENT = "bench", "answerer"


class AdkSessions:
    def __init__(self, service: DatabaseSessionService):
        self._service = service
        self._held: dict[str, asyncio.Task[Session]] = {}
        self.versions = {package: version(package) for package in ("google-adk", "sqlalchemy", "asyncpg")}

    async def fill(self, sessions: SessionSet) -> None:
        for session in range(sessions.sessions):
            user_id, session_id = sessions.place(session)
            made = await self._service.create_session(app_name=APP, user_id=user_id, session_id=session_id)
            # Before the session's own time, so that its last event is not its future.
            begin = time.time() - sessions.messages
            events = [event for each in sessions.turns(session) for event in _events(each)]
            for number, event in enumerate(events):
                event.timestamp = begin + number
            async with AsyncSession(self._service.db_engine) as rows, rows.begin():
                rows.add_all([StorageEvent.from_event(made, event) for event in events])

    async def append(self, sessions: SessionSet, session: int, call: int) -> None:
        session_id = sessions.place(session).session_id
        if session_id not in self._held:
            # Callers of one session share the object, or all but one of them would be told that theirs is stale.
            self._held[session_id] = asyncio.create_task(self._read(sessions, session, most=0))
        held = await self._held[session_id]
        for event in _events(turn(call)):
            await self._service.append_event(held, event)

    async def newest(self, sessions: SessionSet, session: int) -> None:
        found = await self._read(sessions, session, most=NEWEST)
        expect(len(found.events), min(NEWEST, sessions.messages), "messages read")

    async def whole(self, sessions: SessionSet, session: int) -> None:
        found = await self._read(sessions, session, most=None)
        expect(len(found.events), sessions.messages, "messages read")

    async def _read(self, sessions: SessionSet, session: int, *, most: int | None) -> Session:
        user_id, session_id = sessions.place(session)
        config = None if most is None else GetSessionConfig(num_recent_events=most)
        found: Session | None = await self._service.get_session(
            app_name=APP, user_id=user_id, session_id=session_id, config=config
        )
        if found is None:
            raise LookupError(session_id)
        return found


def _events(each: Turn) -> list[Any]:
    invocation = f"e-{time.time_ns()}"
    return [
        Event(
            author="user",
            invocation_id=invocation,
            content=types.Content(role="user", parts=[types.Part(text=each.human)]),
        ),
        Event(
            author=AGENT,
            invocation_id=invocation,
            content=types.Content(role="model", parts=[types.Part(text=each.ai)]),
            custom_metadata={"rag_trace": each.trace},
        ),
    ]


@asynccontextmanager
async def open_subject(where: Where) -> AsyncIterator[Subject]:
    url = postgres_url(where.database_url, driver="asyncpg")
    async with DatabaseSessionService(url, pool_size=CONNECTIONS, max_overflow=0) as service:
        yield AdkSessions(service)
