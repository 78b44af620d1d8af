"""The records that let a request take effect once.

A record is found by a keyed hash of the method and the request_id: what is left of it after its session was
deleted says nothing of either.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from services.storage.errors import Contention, RequestIdReused, SessionDeleted
from services.storage.models import Session
from services.storage.store.postgres.database import Connection, Database, Row, Statement
from services.storage.store.postgres.rows import LOST_PLACE, to_json

HASH_KEY = Statement("SELECT key FROM hash_keys WHERE purpose = 'request_id'")

# A request whose run waits for its turn has taken effect as well, as long as the place is kept.
_PLACE = f"""
    FROM runs AS r
    WHERE r.user_id = :user_id AND r.request_key = :request_key AND r.status = 1 AND NOT ({LOST_PLACE})"""

_CLAIM = Statement(f"""
    INSERT INTO requests AS q (user_id, request_key, request_hash, session_id, result, create_time)
    SELECT :user_id, CAST(:request_key AS bytea), CAST(:request_hash AS bytea), CAST(:session_id AS text),
        CAST(:result AS jsonb), statement_timestamp()
    WHERE NOT EXISTS (SELECT {_PLACE})
    ON CONFLICT (user_id, request_key) DO UPDATE
        SET request_hash = EXCLUDED.request_hash, session_id = EXCLUDED.session_id, result = EXCLUDED.result,
            create_time = EXCLUDED.create_time
        WHERE q.create_time <= statement_timestamp() - interval '1 day'
    RETURNING 1""")

_RECORD = """
    SELECT request_hash, result FROM requests
    WHERE user_id = :user_id AND request_key = :request_key
        AND create_time > statement_timestamp() - interval '1 day'"""

_FIND_RECORD = Statement(_RECORD)
_FIND = Statement(f"""
    {_RECORD}
    UNION ALL
    SELECT r.request_hash, jsonb_build_object('run_id', r.run_id) {_PLACE}""")

_OF_A_SESSION = "jsonb_build_object('uid', s.uid)"


def record_of(result: str = _OF_A_SESSION) -> str:
    """The record of a request, of a WITH that changes `the_session AS s`; `result` is what a repeat needs of it.

    Its unique key makes a repeat fail as a whole.
    """
    return f"""
        INSERT INTO requests (user_id, request_key, request_hash, session_id, result, create_time)
        SELECT s.user_id, CAST(:request_key AS bytea), CAST(:request_hash AS bytea), s.session_id, {result},
            statement_timestamp()
        FROM the_session AS s"""


SESSION_AND_RECORD = """
    (SELECT CAST(:user_id AS text) AS user_id, CAST(:session_id AS text) AS session_id) AS a
    LEFT JOIN sessions AS s ON s.user_id = a.user_id AND s.session_id = a.session_id
    LEFT JOIN requests AS q ON q.user_id = a.user_id AND q.request_key = :request_key"""
"""What there is of both: one row, always."""

FOUND_RECORD = """
    q.request_hash, q.result, q.create_time <= statement_timestamp() - interval '1 day' AS request_outdated"""
"""Of `requests AS q`, for `RequestRecord.recall`."""

_FORGET_OUTDATED = Statement("""
    DELETE FROM requests
    WHERE user_id = :user_id AND request_key = :request_key
        AND create_time <= statement_timestamp() - interval '1 day'""")


def record_parameters(record: "RequestRecord | None") -> dict[str, Any]:
    """Those of `record_of` and SESSION_AND_RECORD."""
    return {
        "request_key": record.request_key if record else None,
        "request_hash": record.request_hash if record else None,
    }


def session_of(result: dict[str, Any], found: Session | None, *, session_id: str) -> Session:
    """The one found, where the request took effect in that one. Raises SessionDeleted."""
    if found is None or result.get("uid") != found.uid:
        raise SessionDeleted(session_id)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request that is to take effect once, for the connection's transaction."""

    user_id: str
    request_key: bytes
    request_hash: bytes

    @classmethod
    def of(cls, user_id: str, request_id: str, *, method: str, request_hash: bytes, key: bytes) -> "RequestRecord":
        request_key = hmac.digest(key, f"{method}\0{request_id}".encode(), hashlib.sha256)
        # Keyed as well: what a short request said could be found out by trying.
        keyed_hash = hmac.digest(key, request_hash, hashlib.sha256)
        return cls(user_id=user_id, request_key=request_key, request_hash=keyed_hash)

    async def recall(self, database: Database, found: Row) -> dict[str, Any] | None:
        """The first result, of FOUND_RECORD; None where there is none. One of a session that is gone is empty.

        A record older than a day is removed, and is none. Raises RequestIdReused.
        """
        if found.request_hash is None:
            return None
        if found.request_outdated:
            await database.rows(_FORGET_OUTDATED, {"user_id": self.user_id, "request_key": self.request_key})
            return None
        return self._first_result(found)

    def _first_result(self, found: Row) -> dict[str, Any]:
        if not hmac.compare_digest(found.request_hash, self.request_hash):
            raise RequestIdReused
        result: dict[str, Any] = json.loads(found.result or "{}")
        return result

    async def find(self, connection: Connection) -> dict[str, Any] | None:
        """The first result, of a request that has taken effect; waits for nobody."""
        first = await connection.row(_FIND_RECORD, {"user_id": self.user_id, "request_key": self.request_key})
        return None if first is None else self._first_result(first)

    async def claim(
        self, connection: Connection, *, session_id: str | None, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Stores `result` for a repeat to find, and returns None; or is a repeat, and returns the first result.

        Waits for another transaction that has claimed the same and not ended. `session_id` is that of the
        session without which the result means nothing: once it is deleted a repeat gets an empty one.
        """
        claimed = await connection.value(
            _CLAIM,
            {
                "user_id": self.user_id,
                "request_key": self.request_key,
                "request_hash": self.request_hash,
                "session_id": session_id,
                "result": to_json(result),
            },
        )
        if claimed is not None:
            return None
        first = await connection.row(_FIND, {"user_id": self.user_id, "request_key": self.request_key})
        if first is None:
            raise Contention
        return self._first_result(first)
