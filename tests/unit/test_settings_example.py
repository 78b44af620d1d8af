"""`.env.example` is what a newcomer copies: it must be whole and true."""

from pathlib import Path

from services.agent.settings import AgentSettings
from services.local.settings import LocalSettings
from services.runtime.settings import setting_name
from services.storage.settings import StorageSettings

EXAMPLE = Path(__file__).parents[2] / ".env.example"
SECRETS = {"ASKBACK_DATABASE_URL", "ASKBACK_REDIS_URL", "ASKBACK_KNOWLEDGE_URL"}


def test_the_example_lists_every_setting_with_its_default() -> None:
    listed = dict(
        line.removeprefix("#").split("=", 1)
        for line in EXAMPLE.read_text().splitlines()
        if line.startswith("#ASKBACK_")
    )
    declared = {
        setting_name(name): field.default
        for settings in (LocalSettings, StorageSettings, AgentSettings)
        for name, field in settings.model_fields.items()
    }
    assert listed.keys() == declared.keys()
    for name, default in declared.items():
        shown = "" if default is None or name in SECRETS else str(default)
        assert listed[name] == (shown.lower() if isinstance(default, bool) else shown), name
