"""The command line of the MCP project's inspector, from npm, on our server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.npm_packages import NODE, install
from tests.service.conftest import client as client
from tests.service.conftest import scripted_agent as scripted_agent
from tests.service.conftest import settings as settings
from tests.service.conftest import threadline as threadline
from tests.service.running_service import Client

pytestmark = pytest.mark.req("G-05")


async def inspect(home: Path, *target: str, method: str, **options: str) -> Any:
    folder = await asyncio.to_thread(install, Path(__file__).parent / "npm", "mcp-inspector")
    launcher = folder / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    process = await asyncio.create_subprocess_exec(
        str(NODE), str(launcher / "index.js"), "--cli", *target, "--method", method, *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=home, env={**os.environ, "HOME": str(home)},
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def use(home: Path, *target: str) -> None:
    tools = (await inspect(home, *target, method="tools/list"))["tools"]
    assert len(tools) == 7
    said = json.dumps([{"role": "user", "text": "Hello from the inspector"}])
    made = await inspect(home, *target, method="tools/call", tool_name="append_messages", tool_arg=f"messages={said}")
    thread = json.loads(made["content"][0]["text"])["thread"]
    resources = (await inspect(home, *target, method="resources/list"))["resources"]
    assert [each["uri"] for each in resources] == [f"threadline://threads/{thread}"]
    read = await inspect(home, *target, method="resources/read", uri=f"threadline://threads/{thread}")
    assert "Hello from the inspector" in read["contents"][0]["text"]


async def test_the_inspector_uses_the_server_on_standard_input(tmp_path: Path) -> None:
    await use(tmp_path, sys.executable, "-m", "threadline", "mcp", "--database", str(tmp_path / "t.db"))


async def test_the_inspector_uses_the_server_over_http(client: Client, tmp_path: Path) -> None:
    await use(tmp_path, f"{client.url}/mcp")
