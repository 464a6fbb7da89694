"""`threadline token` and `threadline audit`."""

from __future__ import annotations

import re

from tests.cli.conftest import Run


def test_a_new_token_is_printed_once_and_alone_on_standard_output(run: Run) -> None:
    created = run("token", "create", "--tenant", "acme", "--user", "ada", "--name", "laptop")
    assert created.code == 0
    assert re.fullmatch(r"tl_acme_[0-9a-f]{64}\n", created.out)
    assert "user ada, tenant acme, role member." in created.err
    listed = run("token", "list", "--tenant", "acme")
    assert "laptop" in listed.out
    assert created.out.strip() not in listed.out
    assert run("token", "list", "--json").json() == {"tokens": []}


def test_a_revoked_token_is_listed_as_revoked_and_cannot_be_revoked_again(run: Run) -> None:
    created = run("token", "create", "--role", "viewer", "--expires", "30d", "--json").json()
    assert created["role"] == "viewer"
    assert created["expiresAt"]
    assert run("token", "revoke", created["id"]).out == f"Revoked {created['id']}\n"
    assert run("token", "list", "--json").json()["tokens"][0]["revokedAt"]
    assert "revoked" in run("token", "list").out
    again = run("token", "revoke", created["id"])
    assert (again.code, again.err) == (3, f"threadline: token '{created['id']}' not found\n")


def test_a_token_that_acts_for_users_is_marked_in_every_listing(run: Run) -> None:
    created = run("token", "create", "--user", "bot", "--acts-for-users")
    assert "user bot, tenant local, role member, may act for any user" in created.err
    assert "member, acts for users" in run("token", "list").out
    assert [each["actsForUsers"] for each in run("token", "list", "--json").json()["tokens"]] == [True]
    assert run("audit", "list", "--json").json()["acts"][0]["details"]["acts_for_users"] is True


def test_wrong_options_create_no_token(run: Run) -> None:
    assert run("token", "create", "--role", "admin", "--acts-for-users").code == 2
    assert run("token", "create", "--expires", "soon").code == 2
    assert "--expires must be more than 0, or never, got '0d'" in run("token", "create", "--expires", "0d").err
    assert "at most 36500d" in run("token", "create", "--expires", "99999999w").err
    assert run("token", "create", "--role", "system").code == 2
    assert run("token", "create", "--tenant", "ACME").code == 2
    assert run("token", "create", "--name", "  ").code == 2
    assert "Create one" in run("token", "list").out


def test_the_audit_log_lists_who_did_what(run: Run) -> None:
    assert "No audit entries" in run("audit", "list").out
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
    for wrong_id in ("yesterday", "2026-11-15", ""):
        refused = run("audit", "list", "--before", wrong_id)
        assert refused.code == 2
        assert f"got {wrong_id!r}" in refused.err
