"""Page tokens: opaque to callers, bound to the query that they page through."""

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from services.runtime.errors import InvalidPageToken

Key = tuple[int | str | datetime, ...]

_VERSION = 1
_DIGEST_BYTES = 12
# The longest key holds a session_id of 128 characters of four bytes each, in base64.
_MAX_TOKEN_CHARACTERS = 1_024
_INT64 = range(-(2**63), 2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class PagedQuery:
    """What a token belongs to: the method, whose rows, and all that chooses or orders them."""

    method: str
    user_id: str
    filters: tuple[str | int | bool, ...] = ()


def encode(query: PagedQuery, key: Key) -> str:
    """The token of the page that follows the row with this sort key; times are kept to the microsecond."""
    parts = [(part - _EPOCH) // _MICROSECOND if isinstance(part, datetime) else part for part in key]
    payload = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(bytes([_VERSION]) + _digest(query, payload) + payload).rstrip(b"=").decode()


def decode(query: PagedQuery, token: str, *shape: type[int] | type[str] | type[datetime]) -> tuple[Any, ...]:
    """The sort key in a token of this very query, of these types; of any other text, InvalidPageToken.

    The digest is no secret, so the key's form is checked all the same. A key that someone made up reaches
    no more than the query itself does, since the query names its owner.
    """
    if len(token) > _MAX_TOKEN_CHARACTERS:
        raise InvalidPageToken
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        parts = json.loads(raw[1 + _DIGEST_BYTES :])
        if not isinstance(parts, list):
            raise InvalidPageToken
        key = tuple(_part(part, kind) for part, kind in zip(parts, shape, strict=True))
        # Written again it must be the same, which holds the version, the digest and the spelling at once.
        if encode(query, key) != token:
            raise InvalidPageToken
    except (ValueError, OverflowError, RecursionError):
        raise InvalidPageToken from None
    return key


def _part(part: object, kind: type[int] | type[str] | type[datetime]) -> int | str | datetime:
    if kind is str and isinstance(part, str) and "\0" not in part:
        return part
    if kind is int and type(part) is int and part in _INT64:
        return part
    if kind is datetime and type(part) is int:
        return _EPOCH + part * _MICROSECOND
    raise InvalidPageToken


def _digest(query: PagedQuery, payload: bytes) -> bytes:
    bound_to = json.dumps([query.method, query.user_id, query.filters]).encode()
    return hashlib.sha256(len(bound_to).to_bytes(8) + bound_to + payload).digest()[:_DIGEST_BYTES]
