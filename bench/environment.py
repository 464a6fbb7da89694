"""The bench's own environment, `.bench/venv`: the peers, pinned, apart from the project's dependencies.

It is made on first use and made again when `bench/requirements.txt` or `pyproject.toml` changes. Threadline itself is
put in from the checkout, so that what is measured is what is there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from bench.places import ROOT, WORKSPACE

HOME = WORKSPACE / "venv"
REQUIREMENTS = ROOT / "bench" / "requirements.txt"
PROJECT = ROOT / "pyproject.toml"
_PYTHON = HOME / "bin" / "python"
_STAMP = HOME / "requirements.sha256"


def enter() -> None:
    """Replaces this process with `bench.run` in the bench's interpreter."""
    ensure()
    os.execv(_PYTHON, [str(_PYTHON), "-m", "bench.run", *sys.argv[1:]])  # noqa: S606


def ensure() -> None:
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + PROJECT.read_bytes()).hexdigest()
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return
    sys.stderr.write("making the bench's environment, once\n")
    _uv("venv", "--clear", "--python", sys.executable, str(HOME))
    _uv("pip", "install", "--python", str(_PYTHON), "--requirement", str(REQUIREMENTS))
    _uv("pip", "install", "--python", str(_PYTHON), "--no-deps", "--editable", str(ROOT))
    _STAMP.write_text(wanted)


def _uv(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], check=True, timeout=900)


if __name__ == "__main__":
    ensure()
