"""Taking back a session's last messages, in the transaction of a connection."""

from services.storage.errors import SessionNotFound
from services.storage.store.postgres.database import Connection, Statement
from services.storage.store.postgres.deletion import delete_range
from services.storage.store.postgres.guards import check_free, check_revision
from services.storage.store.postgres.history import cancel_unasked, change_session
from services.storage.store.postgres.requests import RequestRecord, session_of
from services.storage.store.postgres.session_lock import lock_if_there
from services.storage.store.postgres.sessions import find_session
from services.storage.store.results import DeletedMessages


async def delete_messages(
    connection: Connection,
    *,
    user_id: str,
    session_id: str,
    after_position: int,
    expected_revision: int | None,
    record: RequestRecord | None,
) -> DeletedMessages:
    """Raises ExpiredRunFound too."""
    names = {"user_id": user_id, "session_id": session_id}
    locked = await lock_if_there(connection, **names)
    count = max(0, locked.message_count - after_position) if locked else 0
    if record is not None:
        result = {"uid": locked.uid if locked else "", "count": count}
        known = await record.claim(connection, session_id=session_id, result=result)
        if known is not None:
            session = session_of(known, await find_session(connection, **names), session_id=session_id)
            return DeletedMessages(session=session, count=known["count"])
    if locked is None:
        raise SessionNotFound(session_id)
    check_revision(expected_revision, actual=locked.revision)
    check_free(locked.active_run_id, lease_expired=locked.active_expired, session_id=session_id)
    if not count:
        unchanged = await find_session(connection, **names)
        if unchanged is None:
            raise SessionNotFound(session_id)
        return DeletedMessages(session=unchanged, count=0)
    await delete_range(connection, **names, after=after_position, through=locked.message_count)
    cancels = await cancel_unasked(connection, locked)
    await connection.execute(_FORGET_POSITIONS, {**names, "position": after_position})
    session = await change_session(connection, locked, count=after_position, cancels=cancels, metadata={})
    return DeletedMessages(session=session, count=count)


# A position that is used again is another message's.
_FORGET_POSITIONS = Statement("""
    UPDATE runs AS r
    SET human_position = CASE WHEN r.human_position > :position THEN 0 ELSE r.human_position END,
        human_message_id = CASE WHEN r.human_position > :position THEN '' ELSE r.human_message_id END,
        ai_position = CASE WHEN r.ai_position > :position THEN 0 ELSE r.ai_position END,
        ai_message_id = CASE WHEN r.ai_position > :position THEN '' ELSE r.ai_message_id END
    WHERE r.user_id = :user_id AND r.session_id = :session_id
        AND (r.human_position > :position OR r.ai_position > :position)""")
