"""How large metadata is as JSON, the way that PostgreSQL writes it."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def metadata_bytes(metadata: Mapping[str, Any]) -> int:
    """Of compact JSON in UTF-8 with every number written out, as jsonb keeps it: 1e-300 takes 302 bytes."""
    text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return len(text.encode()) + (_written_out(metadata) if "e" in text else 0)


def _written_out(value: Any) -> int:
    """How many bytes its numbers take beyond those of their short form."""
    if isinstance(value, Mapping):
        return sum(map(_written_out, value.values()))
    if isinstance(value, list):
        return sum(map(_written_out, value))
    if isinstance(value, float) and "e" in (short := repr(value)):
        return len(format(Decimal(short), "f")) - len(short)
    return 0
