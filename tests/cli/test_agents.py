"""A tenant's own agents from the terminal: added, asked, switched off and on, removed; each act is on record."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run


def states(run: Run) -> dict[str, bool]:
    return {agent["id"]: agent["enabled"] for agent in run("agents", "list", "--json").json()["agents"]}


def test_an_agent_is_added_asked_switched_off_and_on_and_removed(run: Run) -> None:
    assert "rehearsal" in run("agents", "list").out
    added = run("agents", "add", "porter", "--provider", "rehearsal", "--name", "Porter", "--system", "Be brief.")
    assert (added.code, states(run)) == (0, {"porter": True})
    assert "6*7 is 42." in run("chat", "--agent", "porter", "-p", "calculate 6*7").out
    assert run("agents", "disable", "porter").code == 0
    assert states(run) == {"porter": False}
    assert run("chat", "--agent", "porter", "-p", "calculate 6*7").code != 0
    assert run("agents", "enable", "porter").code == 0
    assert states(run) == {"porter": True}
    assert "Removed porter" in run("agents", "remove", "porter").out
    assert states(run) == {}
    acts = [act["act"] for act in run("audit", "list", "--json").json()["acts"]]
    assert acts == ["agent.deleted", "agent.changed", "agent.changed", "agent.created"]


def test_a_key_among_the_settings_is_never_shown(run: Run) -> None:
    words = ("--provider", "openai", "--model", "m", "--set", "api_key=sk-proj-abcdefghijklmnop1234")
    added = run("agents", "add", "own", *words)
    assert added.code == 0, added.err
    for shown in (added, run("agents", "list"), run("agents", "list", "--json"), run("audit", "list", "--json")):
        assert "abcdefghijklmnop" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "x", "--provider", "nobody"), "nobody"),
        (("add", "x", "--provider", "rehearsal", "--set", "nothing"), "NAME=VALUE"),
        (("enable", "gone"), "gone"),
    ],
)
def test_what_cannot_be_is_told_in_one_line_and_stores_nothing(run: Run, words: tuple[str, ...], said: str) -> None:
    told = run("agents", *words)
    assert told.code != 0
    assert said in told.err
    assert told.err.count("\n") == 1
    assert states(run) == {}
