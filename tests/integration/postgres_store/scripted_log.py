"""An event log that says what it is told to."""

from services.storage.errors import EventLogUnavailable
from services.storage.store.events import NoEventLog


class ScriptedLog(NoEventLog):
    """The same reply of every run, unless it is away."""

    def __init__(self) -> None:
        self.reply = ""
        self.is_away = False
        self.ended: list[str] = []

    async def reply_text(self, user_id: str, run_id: str) -> str:
        if self.is_away:
            raise EventLogUnavailable
        return self.reply

    async def end(self, user_id: str, run_id: str) -> None:
        self.ended.append(run_id)
