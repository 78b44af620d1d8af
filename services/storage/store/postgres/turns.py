"""Beginning a run that may have to wait: for its turn, or for another to give way.

Nobody holds a connection while waiting: a waiter looks every now and then, and at once where a run of the
session ends in its own process.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from services.runtime.errors import InvalidField, ServiceError
from services.storage.errors import (
    Contention,
    HitlTaskNotFound,
    HitlTaskNotPending,
    HitlTaskPending,
    RequestIdReused,
    RunNotFound,
    RunNotRetryable,
    SessionDeleted,
)
from services.storage.models import ConflictPolicy, RunStatus
from services.storage.store.base import HOLDER_GRACE
from services.storage.store.commands import BeginRun
from services.storage.store.events import RunEventLog
from services.storage.store.postgres.begin import begin_now
from services.storage.store.postgres.bell import Bell
from services.storage.store.postgres.claim import check_named_question
from services.storage.store.postgres.database import Connection, Database, Statement
from services.storage.store.postgres.end import REPLACED, RunName, end_expired, end_without_holder
from services.storage.store.postgres.ids import new_id
from services.storage.store.postgres.queue import (
    Arrival,
    ChangedMeanwhile,
    Place,
    ask_for_place,
    count_ahead,
    find_place,
    give_place_up,
    keep_place,
    leave_place,
    look_ahead,
    take_place,
)
from services.storage.store.postgres.repeat import begun_before
from services.storage.store.postgres.requests import RequestRecord
from services.storage.store.postgres.runs import ExpiredRunFound, find_run
from services.storage.store.postgres.session_lines import SessionLines
from services.storage.store.postgres.session_lock import LockedSession, lock_if_there, lock_or_create
from services.storage.store.postgres.sessions import find_session
from services.storage.store.postgres.take_back import find_retried
from services.storage.store.results import BegunRun

_INTERRUPTING = (ConflictPolicy.INTERRUPT, ConflictPolicy.ROLLBACK)
_INTERRUPT_PATIENCE = timedelta(seconds=10)
# Each that fails means that another run has come to its end, or the turn of this one.
_ATTEMPTS = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LONGEST_PAUSE_BEHIND_S = 0.05, 0.25, 1.0
"""Between two looks; those behind others have more time."""

_REFUSALS = (HitlTaskNotFound, HitlTaskNotPending, HitlTaskPending, RequestIdReused, RunNotFound, RunNotRetryable)
"""What a message may meet once its turn has come; it waits no more then."""


async def begin_in_turn(
    database: Database,
    log: RunEventLog,
    request: BeginRun,
    *,
    record: RequestRecord | None,
    bell: Bell,
    lines: SessionLines,
) -> BegunRun:
    """Begins a run by a policy that lets it wait, in a session that has a name."""
    waiting = _Waiting(database, log, request, record=record, lines=lines)
    with bell.listening(request.user_id, request.session_id) as rung:
        try:
            return await waiting.until_begun(rung)
        except BaseException as error:
            # Whoever was only cut off may come again for the place, by the same request.
            if waiting.interrupts or isinstance(error, _REFUSALS):
                await waiting.give_place_up()
            raise


def check_request(request: BeginRun) -> None:
    if request.conflict_policy is ConflictPolicy.ENQUEUE and not request.request_id:
        raise InvalidField.of("request_id", "must be there with the conflict_policy ENQUEUE: it keeps the place")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The place that is held, in the session as it was then."""

    run_id: str
    session_uid: str


class _Waiting:
    def __init__(
        self,
        database: Database,
        log: RunEventLog,
        request: BeginRun,
        *,
        record: RequestRecord | None,
        lines: SessionLines,
    ):
        self.interrupts = request.conflict_policy in _INTERRUPTING
        self._database = database
        self._log = log
        self._request = request
        self._record = record
        self._lines = lines
        self._held: _Held | None = None
        self._stopping = ""
        self._grace_ends = 0.0

    async def until_begun(self, rung: asyncio.Event) -> BegunRun:
        patience = _INTERRUPT_PATIENCE if self.interrupts else self._request.patience
        give_up = time.monotonic() + patience.total_seconds()
        while True:
            begun = await self._try()
            if begun.run.status is not RunStatus.QUEUED:
                return begun
            held = self._take_note(begun)
            if await self._is_worth_another_try(held, rung, give_up=give_up):
                continue
            if self.interrupts:
                raise Contention
            # From now on it is the caller's to ask for.
            names = {"user_id": self._request.user_id, "run_id": held.run_id}
            await ask_for_place(self._database, **names)
            return replace(begun, queued_ahead=await count_ahead(self._database, **names))

    async def give_place_up(self) -> None:
        if self._held is not None:
            # What had ended the waiting is told all the same; the place is lost in its time.
            with suppress(ServiceError):
                await give_place_up(self._database, user_id=self._request.user_id, run_id=self._held.run_id)

    async def _try(self) -> BegunRun:
        work = partial(
            _take_turn, request=self._request, record=self._record, held=self._held, interrupts=self.interrupts
        )
        for _ in range(_ATTEMPTS):
            try:
                async with self._lines.in_turn(self._request.user_id, self._request.session_id):
                    return await self._database.transaction(work)
            except ExpiredRunFound as found:
                await end_expired(self._database, self._log, user_id=self._request.user_id, session_id=found.session_id)
            except ChangedMeanwhile:
                continue
        raise Contention

    def _take_note(self, queued: BegunRun) -> _Held:
        self._held = _Held(run_id=queued.run.run_id, session_uid=queued.session.uid)
        if queued.session.active_run_id != self._stopping:
            self._stopping = queued.session.active_run_id
            self._grace_ends = time.monotonic() + HOLDER_GRACE.total_seconds()
        return self._held

    async def _is_worth_another_try(self, held: _Held, rung: asyncio.Event, *, give_up: float) -> bool:
        """True once the turn may have come, or there is something to be done for it; False as patience ends."""
        pause, longest = _FIRST_PAUSE_S, _LONGEST_PAUSE_S
        while (left := give_up - time.monotonic()) > 0:
            await _wait(rung, min(pause, left))
            pause = min(1.5 * pause, longest)
            # However many wait for a session, they look by one connection, and in nobody's way who writes.
            async with self._lines.in_turn(self._request.user_id, f"places in {self._request.session_id}"):
                outlook = await look_ahead(self._database, user_id=self._request.user_id, run_id=held.run_id)
            if outlook is None or outlook.is_free:
                return True
            longest = _LONGEST_PAUSE_S if outlook.is_next else _LONGEST_PAUSE_BEHIND_S
            if not self.interrupts or not outlook.active_run_id:
                continue
            if outlook.active_run_id != self._stopping:
                return True
            if time.monotonic() >= self._grace_ends:
                await self._replace(outlook.active_run_id)
                return True
        return False

    async def _replace(self, run_id: str) -> None:
        run = RunName(user_id=self._request.user_id, session_id=self._request.session_id, run_id=run_id)
        await end_without_holder(self._database, self._log, run, REPLACED)


async def _wait(rung: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await rung.wait()
    rung.clear()


async def _take_turn(
    connection: Connection, *, request: BeginRun, record: RequestRecord | None, held: _Held | None, interrupts: bool
) -> BegunRun:
    """Begins the run, or takes or keeps its place: then it is QUEUED."""
    if record is not None:
        # The record is claimed under the session's lock alone, here and where a place is given up.
        known = await record.find(connection)
        if known is not None:
            return await begun_before(connection, request, run_id=known.get("run_id", ""))
    session = await _lock(connection, request, held)
    place = await find_place(
        connection, session, run_id=held.run_id if held else "", record=record, goes_first=interrupts
    )
    if held is not None and isinstance(place, Arrival):
        ended = await find_run(connection, user_id=request.user_id, run_id=held.run_id)
        if ended is not None:
            return await begun_before(connection, request, run_id=held.run_id)
    check_named_question(request, session, interrupts=interrupts)
    if session.active_run_id and session.active_expired:
        raise ExpiredRunFound(session.session_id)
    if not session.active_run_id and not place.ahead:
        return await _begin(connection, request, session, record=record, place=place)
    if request.retries_run_id and request.retries_run_id != session.active_run_id:
        await find_retried(connection, request, session)
    return await _wait_in_line(connection, request, session, record=record, place=place, interrupts=interrupts)


async def _lock(connection: Connection, request: BeginRun, held: _Held | None) -> LockedSession:
    names = {
        "user_id": request.user_id,
        "session_id": request.session_id,
        "answers_task_id": request.answers_task_id,
    }
    if held is None:
        return await lock_or_create(connection, **names)
    session = await lock_if_there(connection, **names)
    if session is None or session.uid != held.session_uid:
        raise SessionDeleted(request.session_id)
    return session


async def _begin(
    connection: Connection,
    request: BeginRun,
    session: LockedSession,
    *,
    record: RequestRecord | None,
    place: Place | Arrival,
) -> BegunRun:
    run_id, waited_since = (place.run_id, place.since) if isinstance(place, Place) else (new_id(), None)
    if waited_since is not None:
        # Or its own place would be found as what the request has done already.
        await leave_place(connection, user_id=request.user_id, run_id=run_id)
    if record is not None:
        known = await record.claim(connection, session_id=session.session_id, result={"run_id": run_id})
        if known is not None:
            raise ChangedMeanwhile
    return await begin_now(connection, request, session, run_id=run_id, waited_since=waited_since)


_ASK_TO_STOP = Statement("""
    UPDATE runs SET cancel_requested = true WHERE user_id = :user_id AND run_id = :run_id AND status = 2""")


async def _wait_in_line(
    connection: Connection,
    request: BeginRun,
    session: LockedSession,
    *,
    record: RequestRecord | None,
    place: Place | Arrival,
    interrupts: bool,
) -> BegunRun:
    if isinstance(place, Place):
        run = await keep_place(connection, user_id=session.user_id, run_id=place.run_id)
    else:
        run = await take_place(connection, request, session, run_id=new_id(), record=record, goes_first=interrupts)
    found = await find_session(connection, user_id=session.user_id, session_id=session.session_id)
    if run is None or found is None:
        raise ChangedMeanwhile
    if interrupts and session.active_run_id:
        names = {"user_id": session.user_id, "run_id": session.active_run_id}
        await connection.execute(_ASK_TO_STOP, names)
    ahead = place.ahead + bool(session.active_run_id)
    return BegunRun.without_hold(run, found, already_begun=False, queued_ahead=ahead)
