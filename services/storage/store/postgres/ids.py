"""The ids that the store makes."""

import secrets
import time


def new_id() -> str:
    """32 hex digits, unique for ever: milliseconds first, so that neighbours in time are neighbours in an index."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
