"""Makes `.venv` from nothing but a Python: no pip, no ensurepip and no root needed.

Everything installed is pinned with its hash, pip and uv among it: in `requirements-dev.lock`, or with the argument
`serve` in `requirements-serve.lock`, which has only what `make serve` needs. Both pin the same versions, so that the
first can be added to the second. When nothing has changed since the last run (the stamp in `.venv` says so), this
returns at once. Standard library only, and written so that Pythons too old to run Threadline can still read the file
and say that they are.
"""

import configparser
import hashlib
import html
import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request
import venv
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what tells them
    sys.exit(
        f"Threadline needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}.\n"
        "Name another one: make PYTHON=python3.12"
    )

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
LOCK = ROOT / "requirements-dev.lock"
SERVE_LOCK = ROOT / "requirements-serve.lock"
STAMP = VENV / ".threadline"
DEFAULT_INDEX = "https://pypi.org/simple"


class BootstrapFailed(Exception):
    """What went wrong and what to do about it, for the terminal."""


def main(purpose: str) -> int:
    lock, wanted = LOCK, fingerprint(LOCK)
    if purpose == "serve" and installed() != wanted:
        lock, wanted = SERVE_LOCK, fingerprint(SERVE_LOCK)
    if installed() == wanted and VENV_PYTHON.exists():
        return 0
    try:
        if not is_usable():
            create()
        install(lock)
    except BootstrapFailed as failure:
        print(f"bootstrap: {failure}", file=sys.stderr)
        return 1
    STAMP.write_text(wanted)
    return 0


def installed() -> str:
    """The fingerprint of what `.venv` holds; empty if there is nothing complete in it."""
    return STAMP.read_text() if STAMP.is_file() else ""


def fingerprint(lock: Path) -> str:
    """Changes with everything that the environment depends on, its own place included: scripts in it hold the path."""
    digest = hashlib.sha256(f"{ROOT} {sys.version_info[:2]}".encode())
    for path in (lock, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_usable() -> bool:
    """Whether `.venv` holds an environment of this Python at this place, even one that is not complete."""
    question = "import sys; print(sys.prefix, *sys.version_info[:2])"
    try:
        answer = subprocess.run([VENV_PYTHON, "-Ic", question], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.stdout.split() == [str(VENV), *map(str, sys.version_info[:2])]


def create() -> None:
    say(f"making .venv with Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        venv.create(VENV, symlinks=True)
    except (OSError, subprocess.SubprocessError) as exc:
        raise BootstrapFailed(f"cannot make {VENV}: {exc}") from exc


def install(lock: Path) -> None:
    pip: list[str] = []
    if not UV.exists():
        pip = pip_command()
        run([*pip, "install", *QUIET, "--no-deps", "--require-hashes", "-r", str(write_pin("uv"))])
    say(f"installing what {lock.name} pins")
    requirements = ["--require-hashes", "-r", str(lock)]
    project = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    uv = [str(UV), "pip", "install", "--quiet", "--python", str(VENV_PYTHON)]
    if run([*uv, *requirements], env=uv_environment()) and run([*uv, *project], env=uv_environment()):
        return
    say("uv is not to be had or did not succeed; going on with pip")
    pip = pip or pip_command()
    if not run([*pip, "install", *QUIET, *requirements]) or not run([*pip, "install", *QUIET, *project]):
        raise BootstrapFailed("the packages could not be installed; what is above says why")


QUIET = ["--quiet", "--disable-pip-version-check", "--no-input"]


def run(command: list[str], env: dict[str, str] | None = None) -> bool:
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore", **(env or {})}
    try:
        return subprocess.run(command, env=environment, check=False).returncode == 0
    except OSError:
        return False


def pip_command() -> list[str]:
    """pip for `.venv`: run out of a wheel that Python or Debian brought, or the system's own, or fetched."""
    for folder in (package_folder("ensurepip") / "_bundled", Path("/usr/share/python-wheels")):
        for wheel in sorted(folder.glob("pip-*.whl"), reverse=True):
            return [str(VENV_PYTHON), f"{wheel}/pip"]
    if (package_folder("pip") / "__main__.py").is_file():
        return [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]
    return [str(VENV_PYTHON), f"{fetch_pip()}/pip"]


def package_folder(name: str) -> Path:
    """Where this Python keeps a package; a place that is not there if it has none, as Debian's may not."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else ROOT / "nowhere"


def locked(name: str) -> str:
    """The lock's entry for one package: its pin and its hashes."""
    entry = re.search(rf"^{name}==.*(?:\n    --hash=.*)+", LOCK.read_text(), re.MULTILINE)
    if entry is None:
        raise BootstrapFailed(f"{LOCK.name} does not pin {name}: run `make lock`")
    return entry.group()


def write_pin(name: str) -> Path:
    path = VENV / f"{name}.lock"
    path.write_text(locked(name) + "\n")
    return path


def fetch_pip() -> Path:
    """The locked version of pip from the package index; its hash decides, whatever the index says."""
    entry = locked("pip")
    name = f"pip-{entry.split()[0].removeprefix('pip==')}-py3-none-any.whl"
    page_url = f"{index_url().rstrip('/')}/pip/"
    say(f"fetching {name}")
    link = re.search(rf'href="([^"]*{re.escape(name)}[^"]*)"', fetch(page_url).decode())
    if link is None:
        raise BootstrapFailed(f"{page_url} does not offer {name}")
    wheel = fetch(urllib.parse.urljoin(page_url, html.unescape(link.group(1))))
    if f"sha256:{hashlib.sha256(wheel).hexdigest()}" not in entry:
        raise BootstrapFailed(f"{name} from {page_url} is not the file that {LOCK.name} pins")
    path = VENV / name
    path.write_bytes(wheel)
    return path


def fetch(url: str) -> bytes:
    try:
        context = ssl.create_default_context(cafile=pip_setting("cert"))
        # Any scheme will do, a file: index as well: what is fetched is checked against the lock.
        with urllib.request.urlopen(url, timeout=60, context=context) as answer:  # noqa: S310
            found: bytes = answer.read()
            return found
    except (OSError, ValueError) as exc:
        raise BootstrapFailed(
            f"cannot fetch {url}: {exc}\n"
            "Install pip (on Debian: apt install python3-venv ca-certificates) or name an index in PIP_INDEX_URL."
        ) from exc


def index_url() -> str:
    return pip_setting("index-url") or DEFAULT_INDEX


def pip_setting(name: str) -> str | None:
    """What pip would be told by its environment variable or its configuration files."""
    said = os.environ.get(f"PIP_{name.replace('-', '_').upper()}")
    if said:
        return said
    config = os.environ.get("XDG_CONFIG_HOME", "~/.config")
    files = ["/etc/pip.conf", "~/.pip/pip.conf", f"{config}/pip/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")]
    parser = configparser.RawConfigParser()
    parser.read([Path(file).expanduser() for file in files if file])
    return parser.get("global", name, fallback=None)


def uv_environment() -> dict[str, str]:
    """uv does not read pip's settings and trusts its own certificates unless told otherwise."""
    told = {"UV_DEFAULT_INDEX": pip_setting("index-url"), "SSL_CERT_FILE": pip_setting("cert")}
    found = {name: value for name, value in told.items() if value and name not in os.environ}
    if ssl.create_default_context().cert_store_stats()["x509_ca"]:
        found["UV_SYSTEM_CERTS"] = "true"
    return found


def say(what: str) -> None:
    print(f"bootstrap: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "dev"))
