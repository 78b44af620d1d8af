"""How fast this storage is, measured beside its own limits and beside others, in one run."""
