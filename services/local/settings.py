"""What the local system can be told."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import model_validator

from services.agent.settings import AgentSettings
from services.local.ports import collide
from services.runtime.postgres_url import PostgresUrl
from services.runtime.settings import PREFIX, Address, ServiceSettings, SettingsError, setting_name
from services.storage.settings import RedisUrl, StorageSettings

# What the command reads beside the two addresses.
_OF_THE_COMMAND = frozenset({"ASKBACK_USER"})


class LocalSettings(ServiceSettings):
    """Where the system lies, listens, and keeps its data."""

    home: Path = Path(".askback")
    """The folder of the embedded servers' data and of all logs."""
    database_url: PostgresUrl | None = None
    """`postgresql://…`; set: no PostgreSQL is started."""
    knowledge_url: PostgresUrl | None = None
    """`postgresql://…`; not set: beside the database."""
    redis_url: RedisUrl | None = None
    """`redis://…`; set: no Valkey is started. `none`: no cache."""
    storage_address: Address = "127.0.0.1:50052"
    """Where storage listens, and where the agent finds it."""
    agent_address: Address = "127.0.0.1:50051"
    """Where the agent listens."""

    @model_validator(mode="after")
    def _addresses_differ(self) -> Self:
        if collide(self.storage_address, self.agent_address):
            raise ValueError(
                "ASKBACK_STORAGE_ADDRESS and ASKBACK_AGENT_ADDRESS: must be two addresses, not "
                f"{self.storage_address} and {self.agent_address}"
            )
        return self


def read_settings() -> tuple[LocalSettings, tuple[str, ...]]:
    """Our own, and the names of all settings that hold a placeholder.

    The services read theirs themselves; SettingsError tells all that any of the three would refuse, before
    anything is started.
    """
    wrong: dict[str, None] = {}
    placeholders: dict[str, None] = {}
    ours = None
    for kind in (LocalSettings, StorageSettings, AgentSettings):
        try:
            settings = kind.read()
        except SettingsError as error:
            wrong |= dict.fromkeys(line for line in error.lines if kind is LocalSettings or not _is_ours(line))
            continue
        placeholders |= dict.fromkeys(settings.placeholders)
        if isinstance(settings, LocalSettings):
            ours = settings
    if wrong or ours is None:
        raise SettingsError(list(wrong))
    return ours, tuple(placeholders)


def unknown_settings() -> list[str]:
    """A line for each ASKBACK setting in the environment or in `.env` that nothing here reads."""
    known = {
        setting_name(name) for kind in (LocalSettings, StorageSettings, AgentSettings) for name in kind.model_fields
    }
    return [
        f"unknown setting {name}" + (f"; did you mean {alike}?" if (alike := _alike(name, known)) else "")
        for name in sorted(LocalSettings.given() - known - _OF_THE_COMMAND)
    ]


def _alike(name: str, known: Iterable[str]) -> str:
    # Without what all have in common, which would make any two alike.
    bare = [each.removeprefix(PREFIX) for each in known]
    found = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=0.7)
    return PREFIX + found[0] if found else ""


def _is_ours(line: str) -> bool:
    """Whether it is about a setting that the services are given by us."""
    ours = LocalSettings.model_fields.keys() - ServiceSettings.model_fields.keys()
    return line.partition(":")[0] in map(setting_name, ours)
