"""`threadline token` and `threadline audit`, as an operator types them."""

from __future__ import annotations

import re

from tests.cli.conftest import Run


def test_a_token_is_shown_once_and_alone_on_its_line(run: Run) -> None:
    made = run("token", "create", "--tenant", "acme", "--user", "ada", "--name", "laptop")
    assert made.code == 0
    assert re.fullmatch(r"tl_acme_[0-9a-f]{64}\n", made.out)
    assert "acts for ada in acme as member" in made.err
    listed = run("token", "list", "--tenant", "acme")
    assert "laptop" in listed.out
    assert made.out.strip() not in listed.out
    assert run("token", "list", "--json").json() == {"tokens": []}


def test_a_revoked_token_is_listed_as_such_and_not_revoked_again(run: Run) -> None:
    made = run("token", "create", "--role", "viewer", "--expires", "30d", "--json").json()
    assert made["role"] == "viewer"
    assert made["expiresAt"]
    assert run("token", "revoke", made["id"]).out == f"Revoked {made['id']}\n"
    assert run("token", "list", "--json").json()["tokens"][0]["revokedAt"]
    assert "revoked" in run("token", "list").out
    again = run("token", "revoke", made["id"])
    assert (again.code, again.err) == (3, f"threadline: no token '{made['id']}' here\n")


def test_a_token_that_acts_for_users_says_so_wherever_it_is_shown(run: Run) -> None:
    made = run("token", "create", "--user", "bot", "--acts-for-users")
    assert "acts for bot, and for any user it names, in local as member" in made.err
    assert "member, acts for users" in run("token", "list").out
    assert [each["actsForUsers"] for each in run("token", "list", "--json").json()["tokens"]] == [True]
    assert run("audit", "list", "--json").json()["acts"][0]["details"]["acts_for_users"] is True


def test_wrong_options_make_no_token(run: Run) -> None:
    assert run("token", "create", "--role", "admin", "--acts-for-users").code == 2
    assert run("token", "create", "--expires", "soon").code == 2
    assert run("token", "create", "--role", "system").code == 2
    assert run("token", "create", "--tenant", "ACME").code == 2
    assert run("token", "create", "--name", "  ").code == 2
    assert "Make one" in run("token", "list").out


def test_the_record_says_who_did_what(run: Run) -> None:
    assert "Nothing on record" in run("audit", "list").out
    token_id = run("token", "create", "--user", "ada", "--json").json()["id"]
    run("token", "revoke", token_id)
    run("purge", "user", "ada", "--yes")
    acts = run("audit", "list", "--json").json()["acts"]
    assert [act["act"] for act in acts] == ["user.purged", "token.revoked", "token.created"]
    assert {act["actorId"].partition(":")[0] for act in acts} == {"operator"}
    rest = run("audit", "list", "--before", acts[0]["id"], "--limit", "1")
    assert "token.revoked" in rest.out
    assert "user.purged" not in rest.out
    assert run("audit", "list", "--limit", "0").code == 2
    for no_act in ("yesterday", "2026-11-15", ""):
        refused = run("audit", "list", "--before", no_act)
        assert refused.code == 2
        assert f"{no_act!r} is no id of an act" in refused.err
