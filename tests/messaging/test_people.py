"""Roles and access of users on platforms, changed by an administrator from outside while the service runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import open_database
from tests.messaging.conftest import Stage, decisions, staging
from tests.service.conftest import held
from threadline.testing.clock import ManualClock

USERS = "/api/v1/users"


async def change_user(stage: Stage, **changes: Any) -> None:
    administrator = stage.caller("root", "admin")
    answer = await stage.http.patch(f"{USERS}/alice", json=changes, headers=administrator)
    assert answer.status_code == 200, answer.text


async def states(stage: Stage) -> dict[str, str]:
    found = await stage.http.get("/api/v1/channels/links", headers=stage.caller("root", "admin"))
    return {each["platform"]: each["state"] for each in found.json()["links"]}


@pytest.mark.req("H-07", "K-09")
async def test_a_role_counts_from_the_next_message_on(stage: Stage) -> None:
    for fake in (stage.slack, stage.telegram, stage.whatsapp):
        await stage.link(fake)
        assert await stage.say(fake, "Hello") == "Hello, you."
    await change_user(stage, role="viewer")
    asked = len(stage.agent.prompts)
    for fake in (stage.slack, stage.telegram, stage.whatsapp):
        assert "not write" in await stage.say(fake, "And now?")
        assert "not write" in await stage.say(fake, "!new")
        assert "viewer" in await stage.say(fake, "!whoami")
    assert len(stage.agent.prompts) == asked
    assert {turn.status for turn in (await stage.turns())[:3]} == {"denied_rbac"}
    await change_user(stage, role="member")
    for fake in (stage.slack, stage.telegram, stage.whatsapp):
        assert await stage.say(fake, "Again") == "Hello, you."


@pytest.mark.req("H-07", "K-09")
async def test_disabling_a_user_ends_links_and_the_running_reply_at_once(stage: Stage) -> None:
    for fake in (stage.slack, stage.telegram):
        await stage.link(fake)
    async with held(stage.agent):
        await stage.slack.say("Think for long")
        async with asyncio.timeout(60):
            await stage.agent.waiting.wait()
        await change_user(stage, disabled=True)
        assert await states(stage) == {"slack": "revoked", "telegram": "revoked"}
        (turn,) = await stage.turns()
        async with asyncio.timeout(60):
            ended = await stage.threadline.as_user("alice", tenant=stage.tenant_id).reply(turn.id).ended()
    assert ended.status == "stopped"
    asked = len(stage.agent.prompts)
    for fake in (stage.slack, stage.telegram):
        assert decisions(await fake.say("And now?")) == ["denied_unverified"]
    await change_user(stage, disabled=False)
    for fake in (stage.slack, stage.telegram):
        assert decisions(await fake.say("And now?")) == ["denied_unverified"]
    assert len(stage.agent.prompts) == asked


async def run_command(database: Path, *command: str) -> Any:
    """A command of an administrator, in another process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "threadline",
        *command,
        "--json",
        "--database",
        str(database),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=database.parent,
        env={**os.environ, "HOME": str(database.parent)},
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.req("H-07", "K-09")
async def test_changes_on_the_command_line_count_in_a_running_service(tmp_path: Path, clock: ManualClock) -> None:
    database = tmp_path / "kept.db"
    store = await open_database(str(database), clock=clock)
    async with staging(store, "local", clock) as stage:
        await stage.link(stage.slack)
        assert await stage.say(stage.slack, "Hello") == "Hello, you."
        await run_command(database, "users", "set", "alice", "--role", "viewer")
        assert "not write" in await stage.say(stage.slack, "And now?")
        await run_command(database, "users", "set", "alice", "--role", "member")
        assert await stage.say(stage.slack, "Again") == "Hello, you."
        await run_command(database, "users", "disable", "alice")
        assert decisions(await stage.slack.say("Still there?")) == ["denied_unverified"]
        arrived = (await run_command(database, "channels", "inbox", "list", "--platform", "slack"))["arrivals"]
    await store.close()
    decided = sorted(each["decision"] for each in arrived)
    assert decided == ["denied_rbac", "denied_unverified", "executed", "executed"]
    assert "Still there" not in json.dumps(arrived)


@pytest.mark.req("H-07", "K-09")
async def test_what_arrived_is_listed_for_administrators_without_its_text(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.say(stage.slack, "My secret plan")
    await stage.slack.say("A stranger's text", "U2002")
    broken = stage.whatsapp.message("Not readable")
    del broken["id"]
    await stage.whatsapp.deliver(stage.whatsapp.batch(broken))
    administrator = stage.caller("root", "admin")
    found = await stage.http.get("/api/v1/channels/inbox", headers=administrator)
    listed = found.json()["arrivals"]
    assert sorted((each["platform"], each["status"], each["decision"]) for each in listed) == [
        ("slack", "done", "denied_unverified"),
        ("slack", "done", "executed"),
        ("whatsapp", "dead", "broken"),
    ]
    (dead,) = [each for each in listed if each["status"] == "dead"]
    assert dead["reason"]
    only = await stage.http.get("/api/v1/channels/inbox?status=dead&platform=whatsapp", headers=administrator)
    assert only.json()["arrivals"] == [dead]
    assert "secret plan" not in found.text
    assert (await stage.http.get("/api/v1/channels/inbox?status=lost", headers=administrator)).status_code == 400
    assert (await stage.http.get("/api/v1/channels/inbox", headers=stage.caller())).status_code == 403
