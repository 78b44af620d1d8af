"""What the local system can be told."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from services.agent.settings import AgentSettings
from services.runtime.settings import Address, ServiceSettings, SettingsError, setting_name
from services.storage.settings import StorageSettings

NO_CACHE = "none"


def _url_of(*schemes: str) -> AfterValidator:
    wanted = " or ".join(f"{scheme}://host…" for scheme in schemes)

    def check(url: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(url.get_secret_value())
            usable = parts.scheme in schemes and (parts.port is None or parts.hostname is not None)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(f"must be {wanted}")
        return url

    return AfterValidator(check)


def _cache_url(url: SecretStr) -> SecretStr:
    if url.get_secret_value() == NO_CACHE:
        return url
    try:
        usable = urlsplit(url.get_secret_value()).scheme in ("redis", "rediss", "unix")
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"must be redis://host… or rediss://host…, or `{NO_CACHE}` to do without a cache")
    return url


class LocalSettings(ServiceSettings):
    """Where the system lies, listens, and keeps its data."""

    home: Path = Path(".askback")
    """The folder of the embedded servers' data and of all logs."""
    database_url: Annotated[SecretStr, _url_of("postgresql", "postgres")] | None = None
    """`postgresql://…`; set: no PostgreSQL is started."""
    knowledge_url: Annotated[SecretStr, _url_of("postgresql", "postgres", "milvus")] | None = None
    """`postgresql://…` or `milvus://…`; not set: beside the database."""
    redis_url: Annotated[SecretStr, AfterValidator(_cache_url)] | None = None
    """`redis://…`; set: no Valkey is started. `none`: no cache."""
    storage_address: Address = "127.0.0.1:50052"
    """Where storage listens, and where the agent finds it."""
    agent_address: Address = "127.0.0.1:50051"
    """Where the agent listens."""


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


def _is_ours(line: str) -> bool:
    """Whether it is about a setting that the services are given by us."""
    ours = LocalSettings.model_fields.keys() - ServiceSettings.model_fields.keys()
    return line.partition(":")[0] in map(setting_name, ours)
