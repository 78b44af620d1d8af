"""What may stand in the way of a write to a session, and what is done about it."""

from services.storage.errors import RevisionMismatch, RunInProgress
from services.storage.models import RunStatus
from services.storage.store.postgres.runs import ExpiredRunFound

_RETRY_AFTER_S = 1.0

HOLDING_RUN = f"""
    LEFT JOIN runs AS r ON r.user_id = s.user_id AND r.run_id = s.active_run_id AND r.status = {RunStatus.RUNNING}"""
LEASE_EXPIRED = "coalesce(r.lease_expire_time <= clock_timestamp(), false)"
"""Of the run that holds `sessions AS s`."""


class TryAgain(Exception):
    """What the write has met is out of the way by now: it is to be begun anew."""


def check_revision(expected: int | None, *, actual: int | None) -> None:
    """`actual` is None where there is no session, which to a writer is at revision 0."""
    actual = actual or 0
    if expected is not None and expected != actual:
        raise RevisionMismatch(expected=expected, actual=actual)


def check_free(active_run_id: str, *, lease_expired: bool, session_id: str) -> None:
    """Raises RunInProgress, or ExpiredRunFound, where a run holds the session."""
    if not active_run_id:
        return
    if lease_expired:
        raise ExpiredRunFound(session_id)
    raise RunInProgress(active_run_id, retry_after_s=_RETRY_AFTER_S)
