"""The places of those who wait for their turn in a session.

A place is a run that is QUEUED. Those who let another give way have theirs before all who only wait, in
order of arrival either way. Places are taken and looked at under the session's lock alone; a look without it
tells when that is worth while.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from services.storage.errors import Contention, RequestIdReused, RunNotFound
from services.storage.models import Run, RunStatus
from services.storage.store.commands import BeginRun
from services.storage.store.postgres.database import Connection, Database, Statement
from services.storage.store.postgres.requests import RequestRecord
from services.storage.store.postgres.rows import LOST_PLACE, RUN, to_run
from services.storage.store.postgres.session_lock import LockedSession

_ASKED_AGAIN_AFTER = "interval '3 seconds'"
_KEEPS_PLACE = f"r.status = 1 AND NOT ({LOST_PLACE})"


class ChangedMeanwhile(Exception):
    """What was found is no more: it is to be looked for anew, from nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Whoever waits as this run, and since when; `ahead` have their turn before, besides the run under way."""

    run_id: str
    ahead: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Someone who has no place yet, and would have so many before."""

    ahead: int


_DROP_LOST = Statement(f"""
    DELETE FROM runs AS r
    WHERE r.user_id = :user_id AND {LOST_PLACE} AND (r.session_id = :session_id OR r.request_key = :request_key)""")

_FIND = Statement("""
    SELECT p.*, (
        SELECT count(*) FROM runs AS r
        WHERE r.user_id = :user_id AND r.session_id = :session_id AND r.status = 1
            AND CASE WHEN p.run_id IS NOT NULL THEN r.queue_place < p.queue_place
                ELSE r.queue_place < 0 OR NOT CAST(:goes_first AS boolean) END
    ) AS ahead, EXISTS (
        SELECT 1 FROM requests AS q
        WHERE q.user_id = :user_id AND q.request_key = :request_key
            AND q.create_time > statement_timestamp() - interval '1 day'
    ) AS has_taken_effect
    FROM (SELECT) AS one LEFT JOIN (
        SELECT r.run_id, r.session_id, r.request_hash, r.queue_place, r.create_time FROM runs AS r
        WHERE r.user_id = :user_id AND r.status = 1 AND (r.run_id = :run_id OR r.request_key = :request_key)
    ) AS p ON true""")


async def find_place(
    connection: Connection, session: LockedSession, *, run_id: str, record: RequestRecord | None, goes_first: bool
) -> Place | Arrival:
    """The place taken before by this run_id or request. Removes those that are lost.

    Raises ChangedMeanwhile where the request has taken effect; RequestIdReused.
    """
    names = {
        "user_id": session.user_id,
        "session_id": session.session_id,
        "request_key": record.request_key if record else None,
    }
    await connection.execute(_DROP_LOST, names)
    found = await connection.one(_FIND, {**names, "run_id": run_id, "goes_first": goes_first})
    if found.has_taken_effect:
        raise ChangedMeanwhile
    if found.run_id is None:
        return Arrival(ahead=found.ahead)
    if record is not None and (found.request_hash, found.session_id) != (record.request_hash, session.session_id):
        raise RequestIdReused
    return Place(run_id=found.run_id, ahead=found.ahead, since=found.create_time)


# Half of the numbers lie before 0, where only those are who let another give way.
_FIRST_OF_ALL = -(2**62)

_TAKE = Statement(f"""
    INSERT INTO runs AS r
        (user_id, run_id, session_id, request_id, holder_id, status, fencing_token, lease, lease_expire_time,
         human_position, human_message_id, create_time, queue_place, queue_asked_time, request_key, request_hash)
    SELECT :user_id, :run_id, :session_id, :request_id, '', {RunStatus.QUEUED}, 0, CAST(:lease AS interval),
        statement_timestamp(), 0, '', statement_timestamp(), coalesce(max(q.queue_place), :before_first) + 1,
        statement_timestamp(), CAST(:request_key AS bytea), CAST(:request_hash AS bytea)
    FROM runs AS q
    WHERE q.user_id = :user_id AND q.session_id = :session_id AND q.status = 1
        AND (q.queue_place < 0) = CAST(:goes_first AS boolean)
    ON CONFLICT DO NOTHING
    RETURNING {RUN}""")


async def take_place(
    connection: Connection,
    request: BeginRun,
    session: LockedSession,
    *,
    run_id: str,
    record: RequestRecord | None,
    goes_first: bool,
) -> Run:
    row = await connection.row(
        _TAKE,
        {
            "user_id": session.user_id,
            "run_id": run_id,
            "session_id": session.session_id,
            "request_id": request.request_id,
            "lease": request.lease,
            "before_first": _FIRST_OF_ALL if goes_first else 0,
            "request_key": record.request_key if record else None,
            "request_hash": record.request_hash if record else None,
            "goes_first": goes_first,
        },
    )
    if row is None:
        # The same request has a place in another session since a moment ago.
        raise Contention
    return to_run(row)


_ASK = Statement(f"""
    UPDATE runs AS r SET queue_asked_time = clock_timestamp()
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND {_KEEPS_PLACE}
    RETURNING {RUN}""")


async def keep_place(connection: Connection, *, user_id: str, run_id: str) -> Run | None:
    """None where it was given up just now."""
    row = await connection.row(_ASK, {"user_id": user_id, "run_id": run_id})
    return None if row is None else to_run(row)


async def ask_for_place(database: Database, *, user_id: str, run_id: str) -> None:
    await database.rows(_ASK, {"user_id": user_id, "run_id": run_id})


_LEAVE = Statement("DELETE FROM runs WHERE user_id = :user_id AND run_id = :run_id AND status = 1")


async def leave_place(connection: Connection, *, user_id: str, run_id: str) -> None:
    await connection.execute(_LEAVE, {"user_id": user_id, "run_id": run_id})


async def give_place_up(database: Database, *, user_id: str, run_id: str) -> None:
    await database.rows(_LEAVE, {"user_id": user_id, "run_id": run_id})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is before a place: others that wait, and the run under way, "" where there is none."""

    is_next: bool
    active_run_id: str
    active_expired: bool

    @property
    def is_free(self) -> bool:
        """Whether the turn has come; or there is a dead run, which anyone may end."""
        return self.active_expired or (self.is_next and not self.active_run_id)


_AHEAD = f"""
    FROM runs AS r
    WHERE r.user_id = p.user_id AND r.session_id = p.session_id AND {_KEEPS_PLACE}
        AND r.queue_place < p.queue_place"""

# Those ahead are not counted: all who wait look again and again.
_LOOK = Statement(f"""
    SELECT s.active_run_id, (
            SELECT a.lease_expire_time <= statement_timestamp() FROM runs AS a
            WHERE a.user_id = s.user_id AND a.run_id = s.active_run_id
        ) AS active_expired,
        p.queue_asked_time <= statement_timestamp() - {_ASKED_AGAIN_AFTER} AS is_to_be_asked,
        NOT EXISTS (SELECT {_AHEAD}) AS is_next
    FROM (SELECT r.* FROM runs AS r WHERE r.user_id = :user_id AND r.run_id = :run_id AND {_KEEPS_PLACE}) AS p
    JOIN sessions AS s ON s.user_id = p.user_id AND s.session_id = p.session_id""")


async def look_ahead(database: Database, *, user_id: str, run_id: str) -> Outlook | None:
    """None where the place is gone or lost: its run may have begun or ended. Keeps it otherwise."""
    names = {"user_id": user_id, "run_id": run_id}
    for row in await database.rows(_LOOK, names):
        if row.is_to_be_asked:
            await ask_for_place(database, **names)
        return Outlook(is_next=row.is_next, active_run_id=row.active_run_id, active_expired=bool(row.active_expired))
    return None


_COUNT_AHEAD = Statement(f"""
    SELECT (SELECT count(*) {_AHEAD}) + CAST(s.active_run_id <> '' AS integer) AS ahead
    FROM runs AS p
    JOIN sessions AS s ON s.user_id = p.user_id AND s.session_id = p.session_id
    WHERE p.user_id = :user_id AND p.run_id = :run_id AND p.status = 1""")


async def count_ahead(database: Database, *, user_id: str, run_id: str) -> int:
    """How many come before it, the run under way included; 0 where the place is gone."""
    rows = await database.rows(_COUNT_AHEAD, {"user_id": user_id, "run_id": run_id})
    return int(rows[0].ahead) if rows else 0


_CANCEL = Statement(f"""
    UPDATE runs AS r
    SET status = {RunStatus.CANCELLED}, cancel_requested = true, finish_time = clock_timestamp(),
        session_revision = (
            SELECT s.revision FROM sessions AS s WHERE s.user_id = r.user_id AND s.session_id = r.session_id
        )
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND r.status = 1 AND NOT ({LOST_PLACE})
    RETURNING {RUN}, r.request_key, r.request_hash""")

_LOCK = Statement("SELECT 1 FROM sessions WHERE user_id = :user_id AND session_id = :session_id FOR UPDATE")


async def cancel_queued(connection: Connection, *, user_id: str, session_id: str, run_id: str) -> Run | None:
    """Ends a run before its turn; its request is answered by that from now on. None where it is not QUEUED."""
    if await connection.value(_LOCK, {"user_id": user_id, "session_id": session_id}) is None:
        raise RunNotFound(run_id)
    row = await connection.row(_CANCEL, {"user_id": user_id, "run_id": run_id})
    if row is None:
        return None
    if row.request_key is not None:
        record = RequestRecord(user_id=user_id, request_key=row.request_key, request_hash=row.request_hash)
        # It may have taken effect elsewhere, with another body, at the moment when it took its place here.
        with suppress(RequestIdReused):
            await record.claim(connection, session_id=session_id, result={"run_id": run_id})
    return to_run(row)
