"""Settings: one frozen value from a file, the environment and the command line, and no key that is silently ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from threadline.core.errors import SettingsInvalid
from threadline.settings import load


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "threadline.toml"
    path.write_text(text)
    return path


def test_without_anything_it_is_a_file_in_the_users_own_folder(tmp_path: Path) -> None:
    home = load(environ={"HOME": str(tmp_path)})
    assert home.database == str(tmp_path / ".local/share/threadline/threadline.sqlite3")
    xdg = load(environ={"HOME": str(tmp_path), "XDG_DATA_HOME": "/data"})
    assert xdg.database == "/data/threadline/threadline.sqlite3"


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    written(tmp_path, 'database = "file.db"\ntenant = "acme"\n[limits]\nmessage_bytes = 10\n')
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
    written(
        tmp_path,
        '[agents.helper]\nprovider = "openai"\nmodel = "m"\nsettings = { api_key_env = "K" }\n'
        "[windows.channels]\nturns = 4\n",
    )
    found = load(environ={"HOME": "/nowhere"})
    assert found.agents["helper"].settings == {"api_key_env": "K"}
    assert found.windows.channels.turns == 4


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('databse = "x"', "databse: there is no such setting; did you mean 'database'"),
        ("[limits]\nmessage_byte = 1", "limits.message_byte: there is no such setting; did you mean 'message_bytes'"),
        ("[service.jwt]\nsecert = 1", "service.jwt.secert: there is no such setting; did you mean 'secret'"),
        ("[service]\nport = 65536", "service.port: expected `int` <= 65535"),
        ('[limits]\nmessage_bytes = "many"', "message_bytes"),
        ('[agents.a]\nmodel = "m"', "agents.a: 'provider' is missing"),
        (
            '[agents.a]\nprovider = "openai"\n[agents.b]\nprovider = "openai"\nmodle = "m"',
            "agents.b.modle: there is no such setting; did you mean 'model'",
        ),
        ("[agents.a]\nprovider = 1", "agents.a.provider: expected `str`, got `int`"),
        ("[channels.keys]\nold = []", "channels.keys.old: expected `str`, got `array`"),
        ("database = ", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsInvalid, match=named):
        load(path, environ={})


def test_a_mistyped_variable_is_named() -> None:
    with pytest.raises(SettingsInvalid, match="THREADLINE_DATABSE: there is no such setting; did you mean 'database'"):
        load(environ={"THREADLINE_DATABSE": "x", "HOME": "/nowhere"})
    with pytest.raises(SettingsInvalid, match="THREADLINE_SERVICE__PORT: expected `int`"):
        load(environ={"THREADLINE_SERVICE__PORT": "x", "HOME": "/nowhere"})


def test_a_file_that_was_named_must_be_there() -> None:
    with pytest.raises(SettingsInvalid, match=r"none\.toml"):
        load(Path("none.toml"), environ={})
    with pytest.raises(SettingsInvalid, match="gone"):
        load(environ={"THREADLINE_SETTINGS": "gone.toml"})


def test_the_bridges_own_variables_are_not_settings() -> None:
    assert load(environ={"THREADLINE_BRIDGE_TOKEN": "t", "HOME": "/nowhere"}).agent == "rehearsal"
