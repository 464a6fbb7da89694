"""Drives real npm `ai` clients: which releases, the node process that runs them, and an agent that can be held."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, TypeAlias

from tests.npm_packages import install
from tests.service.running_service import THREADS, Client

HERE = Path(__file__).parent / "npm"
# 5.0.92 is the first release that accepts a finishReason.
WIDE = ["ai-5.0.15", "ai-5.0.44", "ai-5.0.76", "ai-5.0.116", "ai-6.0.1", "ai-6.0.50", "ai-6.0.150", "ai-7.0.50"]
RELEASES = ["ai-5.0.0", "ai-5.0.91", "ai-5.0.92", "ai-5", "ai-6.0.0", "ai-6", "ai-7.0.0", "ai-7"]


def find_driver(release: str) -> Path:
    """The driver beside the packages of this release."""
    if release not in WIDE:
        return install(HERE, "ai") / "drive.mjs"
    return Path(shutil.copy(HERE / "drive.mjs", install(HERE.with_name("npm-wide"), "ai-wide")))


Node: TypeAlias = subprocess.Popen[str]


class Breath:
    """The agent's pause after each word; while it is held, the third pause lasts until it is released."""

    def __init__(self) -> None:
        self._taken = 0
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        self._taken = 0
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    def let_later_turns_go(self) -> None:
        """Who waits now waits on."""
        self._free = asyncio.Event()
        self._free.set()

    async def __call__(self, seconds: float) -> None:
        self._taken += 1
        if self._taken > 2:
            await self._free.wait()


class Drive:
    def __init__(self, node: Node, client: Client, version: str | None = None) -> None:
        self._node = node
        self._version = version
        self.client = client

    async def __call__(self, *steps: list[Any]) -> list[dict[str, Any]]:
        """What a new client shows after each step."""
        return (await self.then(["begin", self.client.url, "chat", self._version], *steps))[1:]

    async def then(self, *steps: list[Any]) -> list[dict[str, Any]]:
        """The same for the existing client."""
        return [await self._step(step) for step in steps]

    async def _step(self, step: list[Any]) -> dict[str, Any]:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(step) + "\n")
        self._node.stdin.flush()
        try:
            async with asyncio.timeout(60):
                line = await asyncio.to_thread(self._node.stdout.readline)
        except TimeoutError:
            # Nor would the next client be answered.
            self._node.kill()
            raise
        shown: dict[str, Any] = json.loads(line)
        assert "failed" not in shown, shown["failed"]
        return shown

    async def stored(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.client.http.get(f"{THREADS}/chat")).json()["messages"]
        return found
