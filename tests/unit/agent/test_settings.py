"""What an agent may be told, and that the rest is refused before anything starts."""

import pytest

from askback.client import StorageClient
from services.agent.settings import AgentSettings
from services.local.settings import LocalSettings
from services.runtime.settings import ServiceSettings, SettingsError


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


def test_no_model_named_is_the_built_in_one() -> None:
    assert AgentSettings.of().model is None


@pytest.mark.parametrize("key", [None, "sk-key"])
@pytest.mark.parametrize("url", ["http://localhost:11434/v1", "https://models.example/v1/", "http://[::1]:8080"])
def test_a_model_needs_an_endpoint_and_no_key(url: str, key: str | None) -> None:
    settings = AgentSettings.of(model="large", openai_base_url=url, openai_api_key=key)
    assert settings.openai_base_url == url.rstrip("/")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"model": "large"}, "ASKBACK_OPENAI_BASE_URL: must be set where ASKBACK_MODEL is"),
        ({"model": "large", "openai_api_key": "k"}, "ASKBACK_OPENAI_BASE_URL: must be set where ASKBACK_MODEL is"),
        ({"openai_base_url": "http://a/v1"}, "ASKBACK_MODEL: must be set where ASKBACK_OPENAI_BASE_URL is"),
        ({"openai_api_key": "hunter2"}, "ASKBACK_MODEL: must be set where ASKBACK_OPENAI_API_KEY is"),
        ({"fast_model": "small"}, "ASKBACK_MODEL: must be set where ASKBACK_FAST_MODEL is"),
        ({"grade_model": "small"}, "ASKBACK_MODEL: must be set where ASKBACK_GRADE_MODEL is"),
    ],
)
def test_what_is_missing_for_a_model_is_told_in_one_line(given: dict[str, str], line: str) -> None:
    assert refusal(AgentSettings, **given) == line


@pytest.mark.parametrize(
    "url",
    [
        "localhost:11434/v1",
        "ftp://a/v1",
        "http://",
        "http:///v1",
        "http://a:0/v1",
        "http://a:x/v1",
        "http://u:hunter2@a/v1",
        "http://a/v1?key=hunter2",
        "http://a/v1/chat/completions",
        "http://a b/v1",
        "http://[::1/v1",
    ],
)
def test_an_endpoint_that_cannot_be_called_is_told_in_one_line(url: str) -> None:
    line = refusal(AgentSettings, model="large", openai_base_url=url)
    assert line.startswith("ASKBACK_OPENAI_BASE_URL: must ")
    assert "hunter2" not in line


@pytest.mark.parametrize("key", ["two words", "schlüssel", "a\nb"])
def test_a_key_that_fits_no_header_is_told_without_being_shown(key: str) -> None:
    line = refusal(AgentSettings, model="large", openai_base_url="http://a/v1", openai_api_key=key)
    assert line == "ASKBACK_OPENAI_API_KEY: must be printable ASCII without spaces"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((AgentSettings, name) for name in ("embedding_model", "rerank_url", "rerank_model")),
        *((AgentSettings, name) for name in ("rerank_api_key", "rerank_timeout_s", "weather_url", "weather_api_key")),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(kind: type[ServiceSettings], name: str) -> None:
    others = {"database_url": "postgresql://db"}
    line = refusal(kind, **others, **{name: "3600"})
    assert line == f"ASKBACK_{name.upper()}: must be left unset: this version does not support it"
