"""The agent frameworks from PyPI in an environment of their own: they are heavy, and their versions of shared packages
differ from the project's.

It is installed once into `.tools/`, as `tests/frameworks/packages.lock` pins it with hashes, by the first test that
needs it (about a minute). It has Threadline's base dependencies, pytest and the frameworks; Threadline itself is
imported from `src`. `make lock` updates the lock, `make clean` removes the environment.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.bootstrap import ROOT, UV, uv_environment

LOCK = ROOT / "tests" / "frameworks" / "packages.lock"
TOOLS = ROOT / ".tools"
# Longer than any download took; a mirror that hangs must not hold up the suite for ever.
_INSTALL_SECONDS = 600
# Many times what a run takes on a quiet machine.
_RUN_SECONDS = 900.0


@functools.cache
def framework_python() -> Path:
    """The Python of the environment, installed if it is not. Runs that start together wait for the first one."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    home = TOOLS / f"frameworks-{digest}-{sys.version_info[1]}"
    TOOLS.mkdir(exist_ok=True)
    with _locked(home.with_suffix(".lock")):
        if not home.is_dir():
            work = Path(tempfile.mkdtemp(dir=TOOLS)) / "venv"
            _uv("venv", "--quiet", "--python", sys.executable, str(work))
            _uv("pip", "install", "--quiet", "--python", str(work), "--require-hashes", "-r", str(LOCK))
            work.rename(home)
            work.parent.rmdir()
    return home / "bin" / "python"


def run_in_frameworks(
    *arguments: str | Path,
    seconds: float = _RUN_SECONDS,
    variables: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Runs that Python with these arguments; `threadline` and `tests` can be imported."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    environment |= variables or {}
    # Of the run that calls this: its plugins and its coverage are not in the other environment.
    for name in [name for name in environment if name.startswith(("PYTEST_", "COV_", "COVERAGE_"))]:
        del environment[name]
    return subprocess.run(
        [framework_python(), *arguments],
        cwd=folder,
        env=environment,
        check=False,
        timeout=seconds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_pytest(
    paths: Sequence[Path], *options: str, seconds: float = _RUN_SECONDS, variables: Mapping[str, str] | None = None
) -> None:
    """Runs tests in the environment. AssertionError with their output if one fails, or if there are none."""
    # Neither the project's settings nor its conftest: what they name is not installed there.
    plain = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(ROOT), "--noconftest")
    chosen = ("--import-mode=importlib", "-o", "asyncio_mode=auto", *options)
    done = run_in_frameworks("-m", "pytest", *plain, *chosen, *paths, seconds=seconds, variables=variables)
    assert done.returncode == 0, done.stdout


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        [UV, *arguments],
        env={**os.environ, **uv_environment()},
        check=False,
        timeout=_INSTALL_SECONDS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the frameworks could not be installed:\n{done.stdout}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        # The kernel releases it if this process is killed.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
