import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, SecretStr, ValidationError

from services.runtime.settings import Address, ServiceSettings, SettingsError, split_address


class Settings(ServiceSettings):
    address: Address = "127.0.0.1:50051"
    """Where."""
    lease_s: float = Field(default=30, ge=5, le=600)
    """How long."""
    top_k: int = Field(default=8, gt=0)
    """How many."""
    merge: bool = True
    """Whether."""
    policy: Literal["reject", "wait"] = "reject"
    """Which."""
    api_key: SecretStr | None = Field(default=None, min_length=8)
    """A secret."""
    database_url: str | None = Field(default=None, pattern="^postgresql://")
    """Where the data is."""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path) -> Iterator[Path]:
    """A folder without .env, and an environment without settings."""
    folder, environment = Path.cwd(), dict(os.environ)
    os.chdir(tmp_path)
    for name in environment:
        if name.startswith("ASKBACK_"):
            del os.environ[name]
    yield tmp_path
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def refusal(**environment: str) -> list[str]:
    os.environ.update(environment)
    with pytest.raises(SettingsError) as caught:
        Settings.read()
    assert str(caught.value) == "\n".join(caught.value.lines)
    return caught.value.lines


def test_without_any_set_the_defaults_hold() -> None:
    settings = Settings.read()
    assert (settings.log_level, settings.log_format, settings.reflection, settings.drain_s) == ("info", None, True, 30)


def test_the_environment_comes_before_the_file(nowhere: Path) -> None:
    (nowhere / ".env").write_text("ASKBACK_LEASE_S=10\nASKBACK_TOP_K=3\nOTHER=1\nASKBACK_UNKNOWN=1\n", encoding="utf-8")
    os.environ["ASKBACK_LEASE_S"] = "20"
    settings = Settings.read()
    assert (settings.lease_s, settings.top_k) == (20, 3)


def test_all_that_is_given_is_known_by_name_even_what_is_no_setting(nowhere: Path) -> None:
    (nowhere / ".env").write_text("askback_top_k=3\nOTHER=1\nexport ASKBACK_UNKNOWN=1\n", encoding="utf-8")
    os.environ["ASKBACK_LEASE_S"] = "20"
    assert Settings.given() == {"ASKBACK_LEASE_S", "ASKBACK_TOP_K", "ASKBACK_UNKNOWN"}


def test_settings_are_frozen() -> None:
    settings = Settings.read()
    with pytest.raises(ValidationError):
        setattr(settings, "lease" + "_s", 6)


def test_given_values_leave_environment_and_file_aside(nowhere: Path) -> None:
    (nowhere / ".env").write_text("ASKBACK_TOP_K=3\n", encoding="utf-8")
    os.environ["ASKBACK_LEASE_S"] = "20"
    settings = Settings.of(merge=False)
    assert (settings.merge, settings.lease_s, settings.top_k) == (False, 30, 8)


def test_given_values_are_checked_too() -> None:
    with pytest.raises(SettingsError, match="ASKBACK_TOP_K: must be a whole number above 0, not '0'"):
        Settings.of(top_k=0)


def test_an_empty_value_counts_as_not_set() -> None:
    os.environ["ASKBACK_LEASE_S"] = ""
    assert Settings.read().lease_s == 30


@pytest.mark.parametrize("value", ["your-key", "YOUR-key", "replace-with-a-number", " your-key"])
def test_a_placeholder_counts_as_not_set(value: str) -> None:
    os.environ["ASKBACK_LEASE_S"] = value
    settings = Settings.read()
    assert settings.lease_s == 30
    assert settings.placeholders == ("ASKBACK_LEASE_S",)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("LEASE_S", "4", "must be a number from 5 to 600, not '4'"),
        ("LEASE_S", "soon", "must be a number from 5 to 600, not 'soon'"),
        ("LEASE_S", "nan", "must be a number from 5 to 600, not 'nan'"),
        ("TOP_K", "2.5", "must be a whole number above 0, not '2.5'"),
        ("MERGE", "perhaps", "must be true or false, not 'perhaps'"),
        ("POLICY", "both", "must be one of reject, wait, not 'both'"),
        ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error, not 'loud'"),
        ("ADDRESS", "localhost", "must be host:port, with a port from 0 to 65535"),
        ("ADDRESS", "localhost:65536", "must be host:port, with a port from 0 to 65535"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(name: str, value: str, line: str) -> None:
    assert refusal(**{f"ASKBACK_{name}": value}) == [f"ASKBACK_{name}: {line}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("API_KEY", "hunter2"), ("DATABASE_URL", "mysql://root:hunter2@db"), ("TOP_K", "sk-hunter2hunter2hunter2")],
)
def test_a_secret_is_not_repeated(name: str, value: str) -> None:
    [line] = refusal(**{f"ASKBACK_{name}": value})
    assert line.startswith(f"ASKBACK_{name}: ")
    assert "hunter2" not in line


def test_every_wrong_setting_is_told_at_once() -> None:
    assert len(refusal(ASKBACK_LEASE_S="x", ASKBACK_TOP_K="x")) == 2


def test_level_and_format_of_the_log_ignore_case() -> None:
    os.environ.update(ASKBACK_LOG_LEVEL="DEBUG", ASKBACK_LOG_FORMAT="Json")
    settings = Settings.read()
    assert (settings.log_level, settings.log_format) == ("debug", "json")


def test_a_file_that_is_no_text_is_named(nowhere: Path) -> None:
    (nowhere / ".env").write_bytes(b"ASKBACK_TOP_K=\xff\xfe\n")
    assert refusal() == [".env: must be UTF-8 text"]


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in ServiceSettings.model_fields.values())


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("storage:50052", "storage", 50052), ("[::1]:65535", "[::1]", 65535)],
)
def test_an_address_is_split_into_host_and_port(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)


@pytest.mark.parametrize("address", ["", ":1", "a:", "a:b", "::1:5", "http://a:1", "a b:1", "a:-1", "a:１"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        split_address(address)
