"""`threadline users`: roles and access from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.req("K-09")


def test_users_are_created_changed_and_listed(run: Run) -> None:
    assert "No users yet" in run("users", "list").out
    created = run("users", "create", "ada", "--display-name", "Ada Lovelace", "--role", "viewer")
    assert created.out == "Created user ada, role viewer\n"
    assert run("users", "create", "ada").code == 4
    assert run("users", "set", "ada", "--role", "member").out == "User ada now has role member, name Ada Lovelace\n"
    listed = run("users", "list", "--json").json()["users"]
    assert [(user["id"], user["role"], user["displayName"]) for user in listed] == [("ada", "member", "Ada Lovelace")]
    assert "enabled" in run("users", "list").out


def test_a_disabled_user_has_no_valid_token_left(run: Run) -> None:
    run("token", "create", "--user", "ada", "--expires", "never")
    assert run("users", "disable", "ada").code == 0
    assert "disabled since" in run("users", "list").out
    assert run("token", "list", "--json").json()["tokens"][0]["revokedAt"]
    refused = run("token", "create", "--user", "ada")
    assert (refused.code, "is disabled" in refused.err) == (4, True)
    assert "create new ones" in run("users", "enable", "ada").out
    assert run("token", "create", "--user", "ada").code == 0
    assert [act["act"] for act in run("audit", "list", "--json").json()["acts"]][1:3] == [
        "user.enabled",
        "user.disabled",
    ]


def test_unknown_users_and_wrong_roles_are_refused(run: Run) -> None:
    for command in (("set", "ada", "--role", "viewer"), ("disable", "ada"), ("enable", "ada")):
        assert run("users", *command).err == "threadline: user 'ada' not found\n"
    assert run("users", "create", "ada", "--role", "system").code == 2
    assert "is reserved" in run("users", "create", "system").err


def test_a_change_without_a_field_is_refused_and_not_audited(run: Run) -> None:
    run("users", "create", "ada")
    refused = run("users", "set", "ada")
    assert (refused.code, refused.err) == (2, "threadline: nothing to change: give --display-name or --role\n")
    assert [act["act"] for act in run("audit", "list", "--json").json()["acts"]] == ["user.created"]


@pytest.mark.req("K-08")
def test_links_are_created_and_sign_ins_ended(run: Run) -> None:
    run("users", "create", "ada")
    made = run("users", "link", "ada", "--url", "https://chat.example.com/", "--expires", "1d")
    assert made.out.startswith("https://chat.example.com/#sign-in=tll_local_")
    assert "Send it to nobody else" in made.err
    assert run("users", "link", "ada").out.startswith("http://127.0.0.1:8300/#sign-in=tll_local_")
    listed = run("users", "sign-ins", "ada", "--json").json()["signIns"]
    assert [(each["method"], each["openedAt"], each["role"]) for each in listed] == [("link", None, "member")] * 2
    assert run("users", "sign-ins", "ada").out.count("link, not used") == 2
    one = listed[0]["id"]
    assert run("users", "sign-out", "ada", "--session", one).out == "Signed ada out: ended 1 sign-in\n"
    assert run("users", "sign-out", "ada").out == "Signed ada out: ended 1 sign-in\n"
    assert run("users", "sign-ins", "ada").out == "Not signed in anywhere.\n"
    assert run("users", "link", "nobody").err == "threadline: user 'nobody' not found\n"
    assert "within 30 days" in run("users", "link", "ada", "--expires", "31d").err
    run("users", "disable", "ada")
    assert "is disabled" in run("users", "link", "ada").err


@pytest.mark.req("K-06")
def test_a_purge_writes_a_receipt_that_can_be_verified(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("receipts", "key", "--json").json()
    monkeypatch.setenv("THREADLINE_RECEIPTS__KEY", made["key"])
    assert run("receipts", "public-key").out.strip() == made["publicKey"]
    run("users", "create", "ada")
    file = tmp_path / "ada.json"
    assert run("purge", "user", "ada", "--yes", "--receipt", str(tmp_path / "missing" / "ada.json")).code == 2
    assert run("users", "list", "--json").json()["users"]
    assert run("purge", "user", "ada", "--yes", "--receipt", str(file)).out == "Deleted 1 rows: 1 users\n"
    verified = run("receipts", "verify", str(file), "--public-key", made["publicKey"])
    assert verified.out.startswith("Valid: user ada of tenant local erased on ")
    file.write_text(file.read_text().replace('"ada"', '"eve"'))
    changed = run("receipts", "verify", str(file), "--public-key", made["publicKey"])
    assert (changed.code, "signature does not fit" in changed.err) == (2, True)
    file.write_text("[]")
    assert run("receipts", "verify", str(file), "--public-key", made["publicKey"]).code == 2


@pytest.mark.req("K-06")
def test_a_purged_tenant_leaves_one_audit_entry(run: Run) -> None:
    run("token", "create", "--tenant", "acme", "--user", "ada")
    assert run("purge", "tenant", "acme", "--yes").code == 0
    acts = run("audit", "list", "--tenant", "acme", "--json").json()["acts"]
    assert [(act["act"], act["target"]) for act in acts] == [("tenant.purged", "acme")]
    assert acts[0]["details"]["rows"]["api_tokens"] == 1


@pytest.mark.req("K-06")
def test_everything_of_a_user_is_exported_and_imported_elsewhere(run: Run, tmp_path: Path) -> None:
    run("chat", "-p", "What grows in winter?")
    run("context", "set", "I have a garden.")
    user = run("users", "list", "--json").json()["users"][0]["id"]
    assert run("users", "export", user, "-o", str(tmp_path / "all.jsonl")).code == 0
    assert run("users", "export", user).out == (tmp_path / "all.jsonl").read_text()
    elsewhere = ("--database", str(tmp_path / "elsewhere.db"))
    imported = run("threads", "import", str(tmp_path / "all.jsonl"), *elsewhere)
    assert imported.out.startswith("Imported 1 thread")
    assert "1 pinned text not imported" in imported.err
    again = run("threads", "import", str(tmp_path / "all.jsonl"), "--keep-system", *elsewhere)
    assert again.out.startswith("1 thread already here")
    assert "I have a garden." in run("context", "show", *elsewhere).out
    assert run("users", "export", "nobody").err == "threadline: user 'nobody' not found\n"
