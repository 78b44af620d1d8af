"""What the cache has done so far, as plain numbers."""

from dataclasses import dataclass


@dataclass(slots=True)
class CacheCounters:
    """Since the process began."""

    local_hits: int = 0
    """Reads answered from within the process."""
    shared_hits: int = 0
    """Values taken from Redis."""
    fills: int = 0
    """Values read from the store, each for all who waited for it."""
    joined: int = 0
    """Reads that waited for a value that another was getting."""
    extended: int = 0
    """Values brought up to date by a write that this process made."""
    beyond: int = 0
    """Reads of more than a value holds, which went to the store."""
    dropped: int = 0
    """Values from Redis that were none of ours, or another owner's."""
