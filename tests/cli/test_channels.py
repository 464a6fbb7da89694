"""`threadline link` and `threadline channels`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from threadline.bootstrap import open as open_threadline
from threadline.channels.slack_manifest import build_manifest
from threadline.core.sealing import CleanText
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.settings import load
from threadline.testing.platforms import FakeTelegram

SLACK = "signing_secret=s3cr3t-signing\nbot_token=xoxb-s3cr3t\n"


@pytest.fixture
def run_with_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands with an encryption key in the environment."""
    monkeypatch.setenv("THREADLINE_CHANNELS__KEYS__FIRST", run("channels", "key").out.strip())
    return run


@pytest.mark.req("S3-15")
def test_a_link_code_is_alone_on_its_first_line_and_links_can_be_listed_and_removed(run: Run, home: Path) -> None:
    made = run("link", "code", "--platform", "slack")
    code = made.out.splitlines()[0]
    assert (made.code, len(code)) == (0, 8)
    assert f"!link {code}" in made.out
    assert run("link", "code", "--json").json()["expiresAt"]
    assert "threadline link code" in run("link", "list").out

    async def link() -> None:
        async with open_threadline(settings=load()) as threadline:
            await threadline.store.scoped(Scope()).put_link("slack", "U1", "local", "verified")

    asyncio.run(link())
    assert "U1" in run("link", "list").out
    assert run("link", "list", "--user", "ada", "--json").json() == {"links": []}
    assert run("link", "remove", "slack", "U1").out == "Unlinked U1 on slack\n"
    assert run("link", "remove", "slack", "U1").out == "Not linked: U1 on slack\n"
    assert run("link", "code", "--platform", "fax").code == 2


@pytest.mark.req("S3-27")
def test_credentials_are_read_from_standard_input_and_never_printed(
    run_with_key: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = run_with_key("channels", "credentials", "set", "slack", stdin=SLACK)
    assert (stored.code, stored.out) == (0, "Stored, encrypted with key 'first'\n")
    listed = run_with_key("channels", "credentials", "list")
    assert "slack" in listed.out
    as_json = run_with_key("channels", "credentials", "list", "--json")
    assert "s3cr3t" not in listed.out + as_json.out + stored.out
    for wrong in ("", "bot_token=x\n", SLACK + "more=s3cr3t\n", "no pairs at all\n"):
        refused = run_with_key("channels", "credentials", "set", "slack", stdin=wrong)
        assert refused.code == 2
        assert "s3cr3t" not in refused.err
    monkeypatch.setenv("THREADLINE_CHANNELS__KEYS__SECOND", run_with_key("channels", "key").out.strip())
    monkeypatch.setenv("THREADLINE_CHANNELS__KEY", "second")
    assert "older key 'first'" in run_with_key("channels", "doctor").out
    assert "1 set of credentials" in run_with_key("channels", "rotate").out
    assert run_with_key("channels", "credentials", "list", "--json").json()["credentials"][0]["keyId"] == "second"
    assert run_with_key("channels", "credentials", "remove", "slack").out == "Removed slack\n"
    assert run_with_key("channels", "credentials", "remove", "slack").out == "No credentials for slack\n"


def test_the_doctor_names_each_problem_and_how_to_fix_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    unconfigured = run("channels", "doctor")
    assert unconfigured.code == 1
    assert "threadline vault key" in unconfigured.out
    monkeypatch.setenv("THREADLINE_CHANNELS__KEYS__FIRST", run("channels", "key").out.strip())
    monkeypatch.setenv("THREADLINE_CHANNELS__WHATSAPP__ENABLED", "false")
    monkeypatch.setenv("THREADLINE_CHANNELS__TELEGRAM__ENABLED", "false")
    fresh = run("channels", "doctor")
    assert fresh.code == 0
    for sentence in ("slack has no credentials", "whatsapp is disabled", "credentials set slack"):
        assert sentence in fresh.out
    run("channels", "credentials", "set", "slack", stdin=SLACK)
    monkeypatch.setenv("THREADLINE_CHANNELS__SLACK__AGENT", "missing")
    monkeypatch.setenv("THREADLINE_CHANNELS__SLACK__API", "http://127.0.0.1:9/api")
    found = run("channels", "doctor", "--json")
    whats = [finding["what"] for finding in found.json()["findings"]]
    assert found.code == 1
    assert any("'missing'" in what for what in whats)
    assert any("simulated" in what for what in whats)
    assert any("no account is linked on slack" in what for what in whats)
    monkeypatch.setenv("THREADLINE_CHANNELS__KEYS__FIRST", run("channels", "key").out.strip())
    assert "cannot decrypt" in run("channels", "doctor").out


@pytest.mark.req("H-04")
def test_the_manifest_of_a_slack_app_is_printed_for_either_way_to_receive(run: Run) -> None:
    webhook = "https://threadline.example.com/api/v1/tenants/local/channels/slack/webhook"
    assert run("channels", "manifest", "slack").json() == build_manifest("Threadline", None)
    public = run("channels", "manifest", "slack", "--url", "https://threadline.example.com/", "--name", "Ada's agent")
    assert public.json() == build_manifest("Ada's agent", webhook)
    for wrong in ("http://threadline.example.com", "threadline.example.com", "https://"):
        refused = run("channels", "manifest", "slack", "--url", wrong)
        assert (refused.code, refused.out) == (2, "")
    assert run("channels", "manifest", "slack", "--name", "x" * 36).code == 2


@pytest.mark.req("S3-22")
def test_dead_deliveries_are_listed_without_their_text_and_can_be_requeued(run: Run, home: Path) -> None:
    async def dead_letter() -> None:
        async with open_threadline(settings=load()) as threadline:
            system = threadline.store.scoped(system_scope("local"))
            await system.enqueue("slack", "D1", CleanText("private"), turn_id=None, owner_id="local", id="row-1")
            (row,) = await system.claim_outbox("w", until=threadline.clock.now())
            await system.settle_outbox(row.id, "w", status="dead", error="is_archived")

    asyncio.run(dead_letter())
    listed = run("channels", "outbox", "list", "--status", "dead")
    assert "row-1" in listed.out
    assert "is_archived" in listed.out
    assert "private" not in listed.out + run("channels", "outbox", "list", "--json").out
    assert "1 dead letters to slack, with 'is_archived'" in run("channels", "doctor").out
    assert "row-1" in run("channels", "outbox", "requeue", "row-1").out
    assert run("channels", "outbox", "requeue", "row-1").code == 4
    assert run("channels", "outbox", "requeue", "row-2").code == 3
    assert run("channels", "outbox", "list", "--limit", "0").code == 2


@pytest.mark.req("S3-22")
def test_dead_deliveries_are_requeued_together(run: Run, home: Path) -> None:
    async def dead_letters() -> None:
        async with open_threadline(settings=load()) as threadline:
            system = threadline.store.scoped(system_scope("local"))
            platforms: list[Surface] = ["slack", "slack", "telegram"]
            for number, platform in enumerate(platforms):
                id, text = f"row-{number}", CleanText("private")
                await system.enqueue(platform, "D1", text, turn_id=None, owner_id="local", id=id)
                await system.claim_outbox("w", until=threadline.clock.now())
                await system.settle_outbox(id, "w", status="dead", error="is_archived")

    asyncio.run(dead_letters())
    assert [each["count"] for each in run("channels", "outbox", "backlog", "--json").json()["backlog"]] == [2, 1]
    assert run("channels", "outbox", "requeue", "--since", "2126-01-01T00:00Z").out == "Requeued 0 deliveries\n"
    for wrong in (
        [],
        ["row-0", "--all"],
        ["row-0", "--platform", "slack"],
        ["--since", "2026-01-01"],
        ["--since", "x"],
    ):
        refused = run("channels", "outbox", "requeue", *wrong)
        assert (refused.code, refused.out) == (2, "")
    assert run("channels", "outbox", "requeue", "--since", "1h", "--platform", "slack", "--json").json() == {
        "requeued": 2
    }
    assert run("channels", "outbox", "requeue", "--all").out == "Requeued 1 delivery: a running service delivers it\n"
    statuses = {each["status"] for each in run("channels", "outbox", "list", "--json").json()["deliveries"]}
    assert statuses == {"waiting"}
    assert "telegram" in run("channels", "outbox", "list", "--platform", "telegram").out


@pytest.mark.req("H-04")
def test_what_cannot_be_connected_is_explained(run_with_key: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, fix in (
        (["whatsapp"], "whatsapp can only use webhooks: give slack or telegram"),
        ([], "no credentials for slack or telegram: run threadline channels credentials set slack"),
        (["telegram"], "no credentials for telegram: run threadline channels credentials set telegram"),
    ):
        refused = run_with_key("channels", "connect", *words)
        assert (refused.code, refused.out) == (2, "")
        assert fix in refused.err
    # Enough for webhooks, but not for Socket Mode.
    run_with_key("channels", "credentials", "set", "slack", stdin=SLACK)
    refused = run_with_key("channels", "connect", "slack")
    assert refused.code == 2
    assert "app_token is missing" in refused.err


async def test_telegram_can_be_polled_where_no_webhook_reaches_the_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeTelegram() as telegram:
        monkeypatch.setenv("THREADLINE_CHANNELS__TELEGRAM__API", telegram.api)
        monkeypatch.setenv("THREADLINE_CHANNELS__KEYS__FIRST", "A" * 43 + "=")
        async with open_threadline(settings=load()) as threadline:
            scope = Scope("local", "local", "admin")
            await threadline.messaging.credentials.put(scope, "telegram", telegram.secrets)
            await threadline.messaging.links.put(scope, "telegram", telegram.person, "ada", revoked=False)
        await telegram.post("My name is Ada")
        command = (sys.executable, "-m", "threadline", "channels", "connect", "telegram")
        polling = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            (reply,) = await telegram.replies(1)
            assert "My name is Ada" in reply.text
        finally:
            polling.terminate()
            out, _ = await polling.communicate()
        assert polling.returncode == 0
        assert b"Receiving from telegram" in out
