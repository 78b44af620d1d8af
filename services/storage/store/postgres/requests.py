"""The records that let a request take effect once.

A record is found by a keyed hash of the method and the request_id: what is left of it after its session was
deleted says nothing of either.
"""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.storage.errors import Contention, RequestIdReused
from services.storage.store.postgres.rows import to_json

HASH_KEY = text("SELECT key FROM hash_keys WHERE purpose = 'request_id'")

_CLAIM = text("""
    INSERT INTO requests AS q (user_id, request_key, request_hash, session_id, result, create_time)
    VALUES (:user_id, :request_key, :request_hash, :session_id, :result, statement_timestamp())
    ON CONFLICT (user_id, request_key) DO UPDATE
        SET request_hash = EXCLUDED.request_hash, session_id = EXCLUDED.session_id, result = EXCLUDED.result,
            create_time = EXCLUDED.create_time
        WHERE q.create_time <= statement_timestamp() - interval '1 day'
    RETURNING 1""")

_FIND = text("SELECT request_hash, result FROM requests WHERE user_id = :user_id AND request_key = :request_key")

FORGET_SESSION = text("""
    UPDATE requests SET session_id = NULL, result = NULL WHERE user_id = :user_id AND session_id = :session_id""")
"""Leaves of the records of a deleted session only that there was a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request that is to take effect once, for the connection's transaction."""

    user_id: str
    request_key: bytes
    request_hash: bytes

    @classmethod
    def of(cls, user_id: str, request_id: str, *, method: str, request_hash: bytes, key: bytes) -> "RequestRecord":
        request_key = hmac.digest(key, f"{method}\0{request_id}".encode(), hashlib.sha256)
        return cls(user_id=user_id, request_key=request_key, request_hash=request_hash)

    async def claim(
        self, connection: AsyncConnection, *, session_id: str | None, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Stores `result` for a repeat to find, and returns None; or is a repeat, and returns the first result.

        Waits for another transaction that has claimed the same and not ended. `session_id` is that of the
        session without which the result means nothing: once it is deleted a repeat gets an empty one.
        """
        claimed = await connection.execute(
            _CLAIM,
            {
                "user_id": self.user_id,
                "request_key": self.request_key,
                "request_hash": self.request_hash,
                "session_id": session_id,
                "result": to_json(result),
            },
        )
        if claimed.first() is not None:
            return None
        first = (
            await connection.execute(_FIND, {"user_id": self.user_id, "request_key": self.request_key})
        ).one_or_none()
        if first is None:
            raise Contention
        if not hmac.compare_digest(first.request_hash, self.request_hash):
            raise RequestIdReused
        found: dict[str, Any] = first.result or {}
        return found
