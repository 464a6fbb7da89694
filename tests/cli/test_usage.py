"""`threadline usage`: what turns used, grouped."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SETTINGS = """
agent = "helper"
currency = "EUR"

[agents.helper]
provider = "rehearsal"
model = "small"
settings = { models = ["large"] }

[prices.small]
input = 1000.0
output = 2000.0

[budgets.user]
tokens_per_month = 400
"""


@pytest.mark.req("C-06", "C-07")
def test_usage_is_listed_and_a_budget_ends_a_chat_with_one_sentence(run: Run, home: Path) -> None:
    assert "Nothing was used" in run("usage").out
    (home / "threadline.toml").write_text(SETTINGS)
    assert run("chat", "-p", "Hello", "--user", "ada").code == 0
    assert run("chat", "-p", "Hello", "--model", "large").code == 0
    refused = run("chat", "-p", "Hello", "--model", "huge")
    assert (refused.code, "must be one of small, large" in refused.err) == (2, True)
    listed = run("usage", "--by", "user,model", "--json").json()
    assert listed["currency"] == "EUR"
    assert [(row["user"], row["provider"], row["model"], row["turns"]) for row in listed["usage"]] == [
        ("ada", "rehearsal", "small", 1), ("local", "rehearsal", "large", 1),
    ]  # fmt: skip
    assert (listed["usage"][0]["cost"] > 0, listed["usage"][1]["cost"]) == (True, None)
    table = run("usage").out
    assert str(dt.datetime.now(dt.UTC).date()) in table
    assert "rehearsal/small" in table
    assert run("usage", "--by", "", "--of-user", "ada", "--json").json()["usage"][0]["turns"] == 1
    spent = run("chat", "-p", "Hello " * 60)
    while spent.code == 0:
        spent = run("chat", "-p", "Hello " * 60)
    assert "your budget of 400 tokens a month is used up: it renews on" in spent.err
    assert spent.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "thread"), "`by` must be one of day, user, agent, model"),
        (("--since", "monday"), "--since must be a day such as 2026-11-16, got 'monday'"),
        (("--since", "2020-01-01"), "0–365 days before"),
    ],
)
def test_a_wrong_option_prints_one_line(run: Run, words: tuple[str, ...], message: str) -> None:
    result = run("usage", *words)
    assert (result.code != 0, message in result.err, result.err.count("\n")) == (True, True, 1), result.err
