"""Settings: read from a file, the environment and the command line; an unknown key is never ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from threadline.core.errors import SettingsInvalid
from threadline.settings import load


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_settings(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "threadline.toml"
    path.write_text(text)
    return path


def test_the_default_database_is_a_file_in_the_users_data_folder(tmp_path: Path) -> None:
    home = load(environ={"HOME": str(tmp_path)})
    assert home.database == str(tmp_path / ".local/share/threadline/threadline.sqlite3")
    xdg = load(environ={"HOME": str(tmp_path), "XDG_DATA_HOME": "/data"})
    assert xdg.database == "/data/threadline/threadline.sqlite3"


def test_the_command_line_overrides_the_environment_and_that_the_file(tmp_path: Path) -> None:
    write_settings(tmp_path, 'database = "file.db"\ntenant = "acme"\n[limits]\nmessage_bytes = 10\n')
    environ = {"THREADLINE_DATABASE": "env.db", "THREADLINE_LIMITS__MESSAGE_PARTS": "3", "HOME": "/nowhere"}
    both = load(environ=environ)
    assert (both.database, both.tenant, both.limits.message_bytes, both.limits.message_parts) == (
        "env.db",
        "acme",
        10,
        3,
    )
    assert load(environ=environ, overrides={"database": "said.db", "user": None}).database == "said.db"


def test_agents_and_windows_are_read(tmp_path: Path) -> None:
    write_settings(
        tmp_path,
        '[agents.helper]\nprovider = "openai"\nmodel = "m"\nsettings = { api_key_env = "K" }\n'
        "[windows.channels]\nturns = 4\n",
    )
    found = load(environ={"HOME": "/nowhere"})
    assert found.agents["helper"].settings == {"api_key_env": "K"}
    assert found.windows.channels.turns == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('databse = "x"', "unknown setting `databse`, did you mean `database`?"),
        ("[limits]\nmessage_byte = 1", "unknown setting `limits.message_byte`, did you mean `limits.message_bytes`?"),
        ("[service.jwt]\nsecert = 1", "unknown setting `service.jwt.secert`, did you mean `service.jwt.secret`?"),
        ("[masking]\nx = 1", "unknown setting `masking.x`: use enabled"),
        ("[service]\nport = 65536", "`service.port` must be 0–65535, got 65536"),
        ('[service]\nlog_format = "xml"', "`service.log_format` must be 'human' or 'json', got 'xml'"),
        ('[service]\norigins = "*"', "`service.origins` must be a list, each a string, got '*'"),
        ("[service]\norigins = [1]", "`service.origins.0` must be a string, got 1"),
        ("[service]\nrates = 5", "`service.rates` must be a table, got 5"),
        ('[limits]\nmessage_bytes = "many"', "`limits.message_bytes` must be a whole number, got 'many'"),
        ("[masking]\nenabled = []", "`masking.enabled` must be true or false, got a list"),
        ("[service]\nlease_seconds = 2026-11-16", "`service.lease_seconds` must be a number, got a date or time"),
        ('[agents.a]\nmodel = "m"', "`agents.a.provider` is required"),
        (
            '[agents.a]\nprovider = "openai"\n[agents.b]\nprovider = "openai"\nmodle = "m"',
            "unknown setting `agents.b.modle`, did you mean `agents.b.model`?",
        ),
        ("[agents.a]\nprovider = 1", "`agents.a.provider` must be a string, got 1"),
        ("[channels.keys]\nold = []", "`channels.keys.old` must be a string, got a list"),
        ("database = ", "is not valid TOML"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    path = write_settings(tmp_path, text)
    with pytest.raises(SettingsInvalid) as caught:
        load(path, environ={})
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    "text",
    [
        '[channels]\nkeys = "5ecret"',
        "[matrix]\npassword = 53023",
        '[service]\njwt = "5ecret"',
        '[agents]\nhelper = "5ecret"',
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(write_settings(tmp_path, text), environ={})
    assert "5ecret" not in str(caught.value)
    assert "53023" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("THREADLINE_DATABSE", "unknown setting THREADLINE_DATABSE, did you mean THREADLINE_DATABASE?"),
        ("THREADLINE_SERVICE__PORT", "THREADLINE_SERVICE__PORT must be 0–65535, got 'x'"),
        ("THREADLINE_DATABASE__X", "THREADLINE_DATABASE__X: `database` is a value, not a section"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, message: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load(environ={"THREADLINE_DATABASE": "file.db", variable: "x", "HOME": "/nowhere"})
    assert message in str(caught.value)


def test_a_named_settings_file_must_exist() -> None:
    with pytest.raises(SettingsInvalid, match=r"none\.toml"):
        load(Path("none.toml"), environ={})
    with pytest.raises(SettingsInvalid, match="gone"):
        load(environ={"THREADLINE_SETTINGS": "gone.toml"})


def test_variables_of_the_bridge_are_not_settings() -> None:
    assert load(environ={"THREADLINE_BRIDGE_TOKEN": "t", "HOME": "/nowhere"}).agent == "rehearsal"
