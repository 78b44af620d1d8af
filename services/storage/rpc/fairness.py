"""Work that is too long to be done in one go on the event loop."""

import asyncio
import time

_LONGEST_S = 0.002


class Turns:
    """Lets everyone else in whenever the work has gone on for long enough; begins when it is made."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _LONGEST_S

    async def pause(self) -> None:
        """Called often; hands over where the turn is over."""
        if time.monotonic() > self._until:
            await asyncio.sleep(0)
            self._until = time.monotonic() + _LONGEST_S
