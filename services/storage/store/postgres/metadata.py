"""A session's metadata: merged key by key by the statement that holds its row, never past its limits."""

from collections.abc import Mapping
from typing import Any

from services.runtime.errors import InvalidField
from services.storage.metadata_size import metadata_bytes
from services.storage.models import METADATA_MAX_BYTES, METADATA_MAX_KEYS, Session
from services.storage.store.postgres.rows import to_json

# Metadata that does not change is not written anew.
MERGED_METADATA = """
    CASE WHEN CAST(:merges AS boolean)
        THEN (s.metadata || CAST(:merged AS jsonb)) - CAST(:removed AS text[]) ELSE s.metadata END"""
"""Of `sessions AS s`, with the parameters of `merge_parameters`."""


def merge_parameters(changes: Mapping[str, Any]) -> dict[str, Any]:
    """A None removes its key."""
    return {
        "merges": bool(changes),
        "merged": to_json({key: value for key, value in changes.items() if value is not None}),
        "removed": [key for key, value in changes.items() if value is None],
    }


def check_merged(session: Session, changes: Mapping[str, Any]) -> None:
    """Raises InvalidField where the changes have taken the metadata past its limits."""
    if all(value is None for value in changes.values()):
        return
    if len(session.metadata) > METADATA_MAX_KEYS:
        raise InvalidField.of("metadata", f"may hold {METADATA_MAX_KEYS} keys once it is merged")
    if metadata_bytes(session.metadata) > METADATA_MAX_BYTES:
        raise InvalidField.of("metadata", f"may hold {METADATA_MAX_BYTES:,} bytes as JSON once it is merged")
