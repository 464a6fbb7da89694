"""One conversation on the web, in Slack, in WhatsApp and in the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import httpx2
import pytest

import threadline
from threadline.cli.simulation.service import Simulation, start_service
from threadline.core.blocks import to_blocks
from threadline.core.prompts import PromptMessage
from threadline.core.threads import Scope
from threadline.settings import Settings

HOME = "home-rehearsal"


async def said(stage: Simulation, platform: str, text: str) -> str:
    """The bot's reply to this text."""
    fake = stage.platforms[platform]
    before = len(fake.sent)
    assert (await fake.say(text)).status == 200
    return (await fake.replies(before + 1))[-1].text


async def typed(database: Path, text: str) -> str:
    """The reply in the terminal, run as a separate process."""
    command = ("-m", "threadline", "chat", "--resume", HOME, "-p", text, "--database", str(database))
    env = {**os.environ, "HOME": str(database.parent)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, cwd=database.parent, env=env
    )
    async with asyncio.timeout(30):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.mark.req("SX-01", "S3-04")
async def test_web_slack_whatsapp_and_terminal_are_one_conversation(tmp_path: Path) -> None:
    database = tmp_path / "kept.db"
    async with (
        start_service(["slack", "whatsapp"], Settings(database=str(database)), is_temporary=False) as stage,
        httpx2.AsyncClient(base_url=stage.url, timeout=30) as web,
    ):
        message = {"role": "user", "parts": [{"type": "text", "text": "My name is Ada."}]}
        begun = await web.post("/api/v1/ai/chat", json={"message": message, "stateKey": HOME})
        assert begun.status_code == 200
        for platform in ("slack", "whatsapp"):
            assert "linked now" in await said(stage, platform, f"!link {await stage.link_code()}")
        assert "“My name is Ada.”" in await said(stage, "slack", "and now in Slack")
        in_whatsapp = await said(stage, "whatsapp", "and now in WhatsApp")
        assert "“My name is Ada.”" in in_whatsapp
        assert "“and now in Slack”" in in_whatsapp
        assert "“My name is Ada.”" in await typed(database, "what did I say first?")
        assert "shown 4 turns" in await said(stage, "slack", "back in Slack")
        shown = (await web.get(f"/api/v1/ai/threads/{HOME}")).json()["messages"]
    asked = ["My name is Ada.", "and now in Slack", "and now in WhatsApp", "what did I say first?", "back in Slack"]
    assert [each["parts"][0]["text"] for each in shown if each["role"] == "user"] == asked
    async with threadline.open(str(database)) as opened:
        handle = await opened.as_user().thread(HOME)
        # A room's turn takes the same path; the bot itself is tried on a real homeserver elsewhere.
        assert "shown 5 turns" in (await handle.ask("and now in Matrix", surface="matrix")).text
        blocks = to_blocks(PromptMessage(each.role, each.parts) for each in await handle.messages())
        turns = await opened.store.scoped(Scope()).turns(handle.id)
    assert [each["content"][0]["text"] for each in blocks.messages if each["role"] == "user"] == [
        *asked,
        "and now in Matrix",
    ]
    assert [turn.surface for turn in reversed(turns)] == ["web", "slack", "whatsapp", "cli", "slack", "matrix"]
