"""`threadline agents`: add, use, disable, enable and remove a tenant's agents; each action is in the audit log."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run


def enabled_by_id(run: Run) -> dict[str, bool]:
    return {agent["id"]: agent["enabled"] for agent in run("agents", "list", "--json").json()["agents"]}


def test_an_agent_can_be_added_used_disabled_enabled_and_removed(run: Run) -> None:
    assert "rehearsal" in run("agents", "list").out
    added = run("agents", "add", "porter", "--provider", "rehearsal", "--name", "Porter", "--system", "Be brief.")
    assert (added.code, enabled_by_id(run)) == (0, {"porter": True})
    assert "6*7 is 42." in run("chat", "--agent", "porter", "-p", "calculate 6*7").out
    assert run("agents", "disable", "porter").code == 0
    assert enabled_by_id(run) == {"porter": False}
    assert run("chat", "--agent", "porter", "-p", "calculate 6*7").code != 0
    assert run("agents", "enable", "porter").code == 0
    assert enabled_by_id(run) == {"porter": True}
    assert "Removed porter" in run("agents", "remove", "porter").out
    assert enabled_by_id(run) == {}
    acts = [act["act"] for act in run("audit", "list", "--json").json()["acts"]]
    assert acts == ["agent.deleted", "agent.changed", "agent.changed", "agent.created"]


@pytest.mark.req("K-07")
def test_an_api_key_is_refused_without_a_vault_key_and_never_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--provider", "openai", "--model", "m", "--set", "api_key=sk-proj-abcdefghijklmnop1234")
    refused = run("agents", "add", "own", *words)
    assert (refused.code, "[vault.keys]" in refused.err, enabled_by_id(run)) == (2, True, {})
    monkeypatch.setenv("THREADLINE_VAULT__KEYS__FIRST", run("vault", "key", "--json").json()["key"])
    added = run("agents", "add", "own", *words)
    assert added.code == 0, added.err
    assert run("doctor").code == 0
    monkeypatch.setenv("THREADLINE_VAULT__KEYS__SECOND", run("vault", "key", "--json").json()["key"])
    monkeypatch.setenv("THREADLINE_VAULT__KEY", "second")
    assert "threadline vault rotate" in run("doctor").out
    assert run("vault", "rotate", "--json").json() == {"encrypted": 1, "unreadable": 0}
    assert run("channels", "rotate", "--json").json() == {"encrypted": 0, "unreadable": 0}
    assert "No problems found" in run("doctor").out
    for result in (added, run("agents", "list"), run("agents", "list", "--json"), run("audit", "list", "--json")):
        assert "abcdefghijklmnop" not in result.out + result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "x", "--provider", "unknown"), "unknown"),
        (("add", "x", "--provider", "rehearsal", "--set", "nothing"), "NAME=VALUE"),
        (("enable", "gone"), "gone"),
    ],
)
def test_a_wrong_command_prints_one_line_and_stores_nothing(run: Run, words: tuple[str, ...], message: str) -> None:
    result = run("agents", *words)
    assert result.code != 0
    assert message in result.err
    assert result.err.count("\n") == 1
    assert enabled_by_id(run) == {}
