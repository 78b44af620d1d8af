"""What an agent may be told, and that the rest is refused before anything starts."""

import pytest

from askback.client import StorageClient
from services.agent.settings import AgentSettings
from services.local.settings import LocalSettings
from services.runtime.settings import ServiceSettings, SettingsError
from services.storage.settings import StorageSettings


def refusal(kind: type[ServiceSettings], **values: str) -> str:
    with pytest.raises(SettingsError) as caught:
        kind.of(**values)
    [line] = caught.value.lines
    return line


@pytest.mark.parametrize(
    "address", ["storage:50052", "127.0.0.1:1", "127.0.0.1:1,127.0.0.2:1", "[::1]:1, [::2]:1", "[::1]:50052"]
)
def test_storage_may_be_found_wherever_the_client_finds_it(address: str) -> None:
    settings = AgentSettings.of(storage_address=address)
    assert StorageClient(settings.storage_address).address == address


@pytest.mark.parametrize(
    "address", ["storage", "a:1,b:2", "127.0.0.1:1,b:2", "127.0.0.1:1,[::1]:1", "a:1,", "a:0", "a:65536", "http://a:1"]
)
def test_a_storage_address_that_the_client_cannot_use_is_told_in_one_line(address: str) -> None:
    assert refusal(AgentSettings, storage_address=address).startswith("ASKBACK_STORAGE_ADDRESS: must be ")


@pytest.mark.parametrize("kind", [AgentSettings, LocalSettings])
@pytest.mark.parametrize("name", ["database_url", "knowledge_url"])
@pytest.mark.parametrize(
    "url", ["hunter2", "milvus://hunter2:19530", "mysql://root:hunter2@db/x", "postgresql:hunter2"]
)
def test_a_database_that_is_no_postgresql_is_told_in_one_line(kind: type[ServiceSettings], name: str, url: str) -> None:
    line = refusal(kind, **{name: url})
    assert line.startswith(f"ASKBACK_{name.upper()}: must be postgresql://")
    assert ("milvus:// is not supported by this version" in line) is url.startswith("milvus")
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@a:1,b:2/x", "postgres://db?application_name=x", "postgresql+asyncpg://u@[::1]/x"]
)
def test_any_address_of_a_postgresql_may_hold_the_index(url: str) -> None:
    assert AgentSettings.of(knowledge_url=url).index_url == url


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((AgentSettings, name) for name in ("openai_base_url", "openai_api_key", "model", "fast_model")),
        *((AgentSettings, name) for name in ("grade_model", "embedding_model", "rerank_url", "rerank_model")),
        *((AgentSettings, name) for name in ("rerank_api_key", "rerank_timeout_s", "weather_url", "weather_api_key")),
        (StorageSettings, "run_events_ttl_s"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(kind: type[ServiceSettings], name: str) -> None:
    others = {"database_url": "postgresql://db"}
    line = refusal(kind, **others, **{name: "3600"})
    assert line == f"ASKBACK_{name.upper()}: must be left unset: this version does not support it"
