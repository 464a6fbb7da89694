"""A mock provider: aimock, a real server with OpenAI's and Anthropic's APIs.

Installed from npm, pinned by the lock file in `aimock/`.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.npm_packages import NODE, install

HERE = Path(__file__).parent / "aimock"


class MockProvider:
    def __init__(self, url: str) -> None:
        self.url = url

    def last_request(self) -> dict[str, Any]:
        """The body of the newest request, as the server read it."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal", timeout=30) as answer:
            body: dict[str, Any] = json.load(answer)[-1]["body"]
        return body


@contextmanager
def running() -> Iterator[MockProvider]:
    cli = install(HERE, "aimock") / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    command: list[str | Path] = [
        NODE,
        cli,
        "--port",
        "0",
        "--fixtures",
        HERE / "fixtures",
        "--strict",
        "--validate-on-load",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            yield MockProvider(_address(server))
        finally:
            server.terminate()
            server.communicate()


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    said = ""
    for line in server.stdout:
        said += line
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
    raise RuntimeError(f"aimock did not start: {said}")
