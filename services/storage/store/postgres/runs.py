"""Runs by themselves: reading them, renewing a lease, adding to the log of one, asking one to stop."""

from collections.abc import Sequence
from functools import cache

from services.storage.errors import LeaseLost, RunNotFound, SessionNotFound
from services.storage.models import Run, RunEvent, RunStatus
from services.storage.store.events import EventLogEnded, RunEventLog
from services.storage.store.postgres.database import Connection, Database, Row, Statement
from services.storage.store.postgres.rows import LOST_PLACE, RUN, to_run
from services.storage.store.results import AppendedEvents, RunCursor, RunPage

# What has lost its place in the queue is no run any more.
_GET = Statement(f"""
    SELECT {RUN} FROM runs AS r WHERE r.user_id = :user_id AND r.run_id = :run_id AND NOT ({LOST_PLACE})""")


async def get_run(database: Database, user_id: str, run_id: str) -> Run:
    for row in await database.rows(_GET, {"user_id": user_id, "run_id": run_id}):
        return to_run(row)
    raise RunNotFound(run_id)


async def find_run(connection: Connection, *, user_id: str, run_id: str) -> Row | None:
    return await connection.row(_GET, {"user_id": user_id, "run_id": run_id})


_ORDER = "r.create_time DESC, r.run_id"


@cache
def _list_statement(*, continued: bool) -> Statement:
    # The first condition is what the index can start from; the second cuts ties.
    beyond = "AND r.create_time <= :after_time AND (r.create_time < :after_time OR r.run_id > :after_id)"
    return Statement(f"""
        SELECT {RUN}
        FROM sessions AS s
        LEFT JOIN LATERAL (
            SELECT r.* FROM runs AS r
            WHERE r.user_id = s.user_id AND r.session_id = s.session_id AND NOT ({LOST_PLACE})
                {beyond if continued else ""}
            ORDER BY {_ORDER} LIMIT CAST(:page_size AS bigint) + 1
        ) AS r ON true
        WHERE s.user_id = :user_id AND s.session_id = :session_id
        ORDER BY {_ORDER}""")


async def list_runs(
    database: Database, user_id: str, session_id: str, *, page_size: int, after: RunCursor | None
) -> RunPage:
    parameters: dict[str, object] = {"user_id": user_id, "session_id": session_id, "page_size": page_size}
    if after is not None:
        parameters |= {"after_time": after.create_time, "after_id": after.run_id}
    rows = await database.rows(_list_statement(continued=after is not None), parameters)
    if not rows:
        raise SessionNotFound(session_id)
    # A session without any comes as one row of nulls.
    runs = tuple(to_run(row) for row in rows[:page_size] if row.run_id is not None)
    more = len(rows) > page_size
    return RunPage(runs=runs, next=RunCursor(runs[-1].create_time, runs[-1].run_id) if more else None)


_RENEW = Statement(f"""
    UPDATE runs AS r SET lease_expire_time = clock_timestamp() + r.lease
    WHERE r.user_id = :user_id AND r.run_id = :run_id AND r.fencing_token = :fencing_token AND r.status = 2
    RETURNING {RUN}""")


async def renew_run(database: Database, user_id: str, run_id: str, *, fencing_token: int) -> Run:
    parameters = {"user_id": user_id, "run_id": run_id, "fencing_token": fencing_token}
    for row in await database.rows(_RENEW, parameters):
        return to_run(row)
    await get_run(database, user_id, run_id)
    raise LeaseLost(run_id)


async def append_run_events(
    database: Database,
    log: RunEventLog,
    user_id: str,
    run_id: str,
    *,
    fencing_token: int,
    events: Sequence[RunEvent],
) -> AppendedEvents:
    rows = await database.rows(_GET, {"user_id": user_id, "run_id": run_id})
    if not rows:
        raise RunNotFound(run_id)
    [run] = rows
    # A run that was ended for its holder has nothing that its holder finished it with.
    is_its_holders = run.status == RunStatus.RUNNING or run.finish_hash is not None
    if run.fencing_token != fencing_token or not is_its_holders:
        raise LeaseLost(run_id)
    try:
        last_sequence = await log.append(user_id, run_id, events)
    except EventLogEnded:
        raise LeaseLost(run_id) from None
    return AppendedEvents(last_sequence=last_sequence, cancel_requested=run.cancel_requested)


class ExpiredRunFound(Exception):
    """A run whose lease has run out holds the session: it is to be ended, then the work begun anew."""

    def __init__(self, session_id: str):
        super().__init__()
        self.session_id = session_id
