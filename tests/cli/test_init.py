"""The first start, `threadline init`, agents at an address, and `threadline doctor`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stub_model import StubModel, serve_model
from tests.cli.test_chat import Terminal
from tests.cli.test_chat import terminal as terminal
from threadline import settings
from threadline.cli import model_search, settings_file
from threadline.core.errors import SettingsInvalid
from threadline.settings import AgentSettings

KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENROUTER_API_KEY",
    "MISTRAL_API_KEY",
    "GROQ_API_KEY",
    "DEEPSEEK_API_KEY",
)


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "OPENAI_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    # A machine that runs the tests may run a model server too.
    monkeypatch.setattr(model_search, "SERVERS", model_search.SERVERS[:1])
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, no_models: None) -> Iterator[StubModel]:
    with serve_model() as model:
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{model.port}")
        yield model


def user_file(home: Path) -> Path:
    return home / ".config/threadline/threadline.toml"


@pytest.mark.req("T-01")
def test_init_finds_a_local_server_and_tests_it(run: Run, home: Path, stub: StubModel) -> None:
    written = run("init", "--yes")
    assert written.code == 0, written.err
    assert f"to {user_file(home)}" in written.out
    assert "It answers" in written.out
    assert "Hello from the stub." in written.out
    assert run("chat", "-p", "hello", "--json").json()["agentId"] == "ollama"
    assert stub.requests[-1]["model"] == "stub-small"
    # A second time changes nothing.
    before = user_file(home).read_text()
    assert run("init", "--yes").code == 0
    assert user_file(home).read_text() == before


@pytest.mark.req("T-01")
def test_init_names_the_variable_and_never_writes_the_key(
    run: Run, home: Path, stub: StubModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "threadline.toml").write_text(
        '# mine\ntenant = "local" # kept\n\n[prices.stub-large]\ninput = 1.0\noutput = 2.0\n'
    )
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
    assert run("init", "--yes", "--model", "stub-large").code == 0
    text = (home / "threadline.toml").read_text()
    assert "sk-secret" not in text
    assert "# mine" in text
    assert "# kept" in text
    assert tomllib.loads(text)["agents"]["gpt"]["settings"]["api_key_env"] == "OPENAI_API_KEY"
    assert stub.keys[-1] == "Bearer sk-secret-of-mine"
    assert stub.requests[-1]["model"] == "stub-large"


@pytest.mark.req("T-01")
def test_init_without_a_model_says_how_to_get_one(run: Run, home: Path, no_models: None) -> None:
    found = run("init", "--yes")
    assert found.code == 1
    assert "ANTHROPIC_API_KEY" in found.err
    assert "ollama pull" in found.err
    assert not user_file(home).exists()
    assert run("init").code == 2


@pytest.mark.req("T-01")
def test_init_says_if_the_model_does_not_answer(run: Run, home: Path, stub: StubModel) -> None:
    stub.replies = [[""]]
    tested = run("init", "--yes")
    assert tested.code == 1
    assert "It does not answer" in tested.err


@pytest.mark.req("T-01")
def test_init_asks_in_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    with serve_model() as stub:
        terminal.environment["OLLAMA_HOST"] = f"127.0.0.1:{stub.port}"
        terminal.start_command("init")
        terminal.expect("1. Ollama")
        terminal.expect("Use which one?")
        terminal.type("7")
        terminal.expect("Type a number from 1 to")
        terminal.type("1")
        terminal.expect("2. stub-large")
        terminal.type("2")
        terminal.expect("It answers")
        terminal.expect_exit(0)
    assert settings.load(user_file(tmp_path), environ={}).agents["ollama"].model == "stub-large"


@pytest.mark.req("T-01")
def test_the_first_start_says_what_answers_and_what_was_found(terminal: Terminal) -> None:
    with serve_model() as stub:
        terminal.environment["OLLAMA_HOST"] = f"127.0.0.1:{stub.port}"
        terminal.environment["ANTHROPIC_API_KEY"] = "x"
        terminal.start()
        terminal.expect("rehearsal is not a model")
        terminal.expect("Anthropic ($ANTHROPIC_API_KEY)")
        terminal.expect("Ollama here")
        terminal.expect("threadline init")
        terminal.quit()


@pytest.mark.req("T-01")
def test_an_agent_at_an_address_is_added_by_the_operator(run: Run, home: Path, stub: StubModel) -> None:
    words = ("agents", "add", "nearby", "--provider", "openai", "--model", "stub-large", "--base-url", stub.url)
    added = run(*words)
    assert (added.code, "threadline chat --agent nearby" in added.out) == (0, True), added.err
    assert run("chat", "--agent", "nearby", "-p", "hello").out == "Hello from the stub.\n"
    assert "nearby" in run("agents", "list").out
    assert run(*words).code == 4
    refused = run(*words[:2], "keyed", *words[3:], "--set", "api_key=sk-1")
    assert (refused.code, "api_key_env" in refused.err) == (2, True)
    before = run("agents", "list").out
    for address in ("127.0.0.1:8000", "ftp://host/v1", "http://", "http://[x"):
        refused = run(*words[:2], "wrong", *words[3:-1], address)
        assert (refused.code, "`base_url`: " in refused.err) == (2, True), address
    assert run("agents", "list").out == before


@pytest.mark.req("T-01")
@pytest.mark.parametrize("address", ["http://[x", "::::", "https://", "\x7f"])
def test_an_invalid_address_in_the_environment_finds_nothing_and_stops_nothing(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, no_models: None, address: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", address)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    refused = run("init", "--yes")
    assert (refused.code, "`base_url`: " in refused.err) == (2, True)
    assert not user_file(home).exists()
    assert run("chat", "-p", "hello").code == 0


@pytest.mark.req("T-01")
def test_the_address_that_ollama_listens_on_is_where_it_is_asked(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, no_models: None, stub: StubModel
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", f"0.0.0.0:{stub.port}")
    assert "stub-small" in run("init", "--yes").out


@pytest.mark.req("T-01")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[agents.a]\nprovider = "opena"\n', "did you mean 'openai'?"),
        ('[agents.a]\nprovider = "openai"\nsettings = { base_urll = "x" }\n', "unknown setting `base_urll`"),
        ('[agents.a]\nprovider = "openai"\nsettings = { api_key_env = "NO_SUCH_KEY" }\n', "NO_SUCH_KEY is not set"),
        ('[agents.a]\nprovider = "openai"\n', "no key for OpenAI"),
        ('[agents.a]\nprovider = "openai"\nsettings = { base_url = "host:1" }\n', "`base_url`: URL must start with"),
        ('agent = "gone"\n', "got 'gone'"),
        ("windowz = 1\n", "did you mean `windows`?"),
    ],
)
def test_doctor_checks_the_settings_and_the_agents(
    run: Run, home: Path, no_models: None, text: str, fault: str
) -> None:
    (home / "threadline.toml").write_text(text)
    checked = run("doctor")
    assert checked.code == 1
    assert fault in checked.out
    assert run("doctor", "--json").json()["findings"][0]["level"] == "error"


@pytest.mark.req("T-01")
def test_doctor_asks_a_local_server_for_its_models(run: Run, home: Path, stub: StubModel) -> None:
    run("chat", "-p", "hello")
    stub.write_settings(home / "threadline.toml")
    assert run("doctor").out.endswith("No problems found.\n")
    stub.models = ["another"]
    assert "does not list the model 'stub-small'" in run("doctor").out
    assert run("doctor").code == 0


@pytest.mark.req("T-01")
def test_doctor_tells_a_refused_key_from_a_server_that_is_down(
    run: Run, home: Path, stub: StubModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("chat", "-p", "hello")
    monkeypatch.setenv("STUB_KEY", "right")
    stub.required_key = "right"
    settings = f'settings = {{ base_url = "{stub.url}", api_key_env = "STUB_KEY" }}'
    (home / "threadline.toml").write_text(f'[agents.a]\nprovider = "openai"\nmodel = "stub-small"\n{settings}\n')
    assert run("doctor").out.endswith("No problems found.\n")
    monkeypatch.setenv("STUB_KEY", "wrong")
    checked = run("doctor")
    assert checked.code == 1
    assert f"error: agent 'a': {stub.url} refused the key in $STUB_KEY (401)\n" in checked.out
    stub.write_settings(home / "threadline.toml")
    assert f"{stub.url} requires a key (401)" in run("doctor").out
    (home / "threadline.toml").write_text(
        '[agents.a]\nprovider = "openai"\nsettings = { base_url = "http://127.0.0.1:1/v1", api_key = "none" }\n'
    )
    checked = run("doctor")
    assert (checked.code, "http://127.0.0.1:1/v1 cannot be reached" in checked.out) == (0, True)


@pytest.mark.req("T-01", "A-02")
def test_doctor_names_mcp_servers_that_fail(run: Run, home: Path, no_models: None) -> None:
    run("chat", "-p", "hello")
    (home / "threadline.toml").write_text(
        '[mcp.gone]\ncommand = ["/no/such/program"]\n'
        '[mcp.silent]\nurl = "http://127.0.0.1:1/mcp"\nconnect_seconds = 1\n'
    )
    checked = run("doctor")
    assert checked.code == 1
    assert "error: MCP server gone failed: there is no program '/no/such/program'" in checked.out
    assert "error: MCP server silent failed: " in checked.out
    assert "threadline mcp-servers test silent" in checked.out


def test_lists_in_a_table_are_extended_and_the_rest_is_kept() -> None:
    text = settings_file.append_to_list("", "tools.allow", "/srv/a", "read")
    text = settings_file.append_to_list(f'# head\nagent = "x"\n\n{text}\n[prices]\n', "tools.allow", "/srv/b", "run")
    text = settings_file.append_to_list(text, "tools.allow", "/srv/a", "write")
    assert tomllib.loads(text)["tools"]["allow"] == {"/srv/a": ["read", "write"], "/srv/b": ["run"]}
    assert text.startswith("# head\n")


def test_an_invalid_change_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "threadline.toml"
    path.write_text('agent = "x"\n')
    with pytest.raises(SettingsInvalid, match="was not changed"):
        settings_file.write(path, "windowz = 1\n")
    assert path.read_text() == 'agent = "x"\n'
    text = settings_file.add_agent("", 'a"b', AgentSettings("openai", "m\x7f\n", settings={"options": {"t": 0.5}}))
    assert tomllib.loads(text)["agents"]['a"b']["model"] == "m\x7f\n"
