"""The bootstrap trusts the lock, not the index, and is told by pip's settings where the index is."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conventions.rules import ROOT
from tools import bootstrap

WHEEL = "pip-99.1-py3-none-any.whl"
WHEEL_BYTES = b"as good as a wheel"


class Index(BaseHTTPRequestHandler):
    """A package index that offers one wheel, by a relative link with its characters escaped."""

    def do_GET(self) -> None:
        page = f'<a href="../../files/{WHEEL}#sha256=0&amp;x">{WHEEL}</a>'.encode()
        offered = {"/simple/pip/": page, f"/files/{WHEEL}": WHEEL_BYTES}
        body = offered.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test's output is not the place."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/simple/"
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield url
    server.shutdown()
    thread.join()
    server.server_close()


def lock_pip(monkeypatch: pytest.MonkeyPatch, folder: Path, wheel: bytes) -> None:
    lock = folder / "requirements-dev.lock"
    lock.write_text(f"pip==99.1 \\\n    --hash=sha256:{hashlib.sha256(wheel).hexdigest()}\n    # via threadline\n")
    monkeypatch.setattr(bootstrap, "LOCK", lock)
    monkeypatch.setattr(bootstrap, "VENV", folder)


@pytest.mark.usefixtures("index")
def test_pip_is_fetched_from_the_index_that_pip_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_pip(monkeypatch, tmp_path, WHEEL_BYTES)
    assert bootstrap.fetch_pip().read_bytes() == WHEEL_BYTES


@pytest.mark.usefixtures("index")
def test_a_wheel_that_is_not_the_locked_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_pip(monkeypatch, tmp_path, b"what was reviewed")
    with pytest.raises(bootstrap.BootstrapFailed, match=r"is not the file that requirements-dev\.lock pins"):
        bootstrap.fetch_pip()
    assert not (tmp_path / WHEEL).exists()


def test_an_index_that_cannot_be_reached_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_pip(monkeypatch, tmp_path, WHEEL_BYTES)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no-index").as_uri())
    with pytest.raises(bootstrap.BootstrapFailed, match=r"apt install python3-venv"):
        bootstrap.fetch_pip()


def test_pips_configuration_files_are_read_and_its_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://index.example/simple\n")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert bootstrap.index_url() == "https://index.example/simple"
    assert bootstrap.uv_environment()["UV_DEFAULT_INDEX"] == "https://index.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.example/simple")
    assert bootstrap.index_url() == "https://other.example/simple"


@pytest.mark.parametrize("name", ["pip", "uv"])
def test_the_tools_that_install_are_locked_themselves(name: str) -> None:
    assert re.match(rf"{name}==\S+ \\\n    --hash=sha256:[0-9a-f]{{64}}", bootstrap.locked(name))


def test_a_change_of_the_lock_changes_the_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bootstrap.fingerprint(bootstrap.LOCK)
    assert bootstrap.fingerprint(bootstrap.LOCK) == before
    lock_pip(monkeypatch, tmp_path, WHEEL_BYTES)
    assert bootstrap.fingerprint(bootstrap.LOCK) != before


def installs(monkeypatch: pytest.MonkeyPatch, folder: Path, purpose: str) -> list[str]:
    """The locks that the bootstrap installs for this purpose, into an environment that is in this folder."""
    done: list[str] = []
    python = folder / "python"
    python.touch()
    monkeypatch.setattr(bootstrap, "STAMP", folder / "stamp")
    monkeypatch.setattr(bootstrap, "VENV_PYTHON", python)
    monkeypatch.setattr(bootstrap, "is_usable", lambda: True)
    monkeypatch.setattr(bootstrap, "install", lambda lock: done.append(lock.name))
    assert bootstrap.main(purpose) == 0
    return done


def test_serving_installs_its_own_lock_once_and_developing_adds_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installs(monkeypatch, tmp_path, "serve") == ["requirements-serve.lock"]
    assert installs(monkeypatch, tmp_path, "serve") == []
    assert installs(monkeypatch, tmp_path, "dev") == ["requirements-dev.lock"]
    assert installs(monkeypatch, tmp_path, "serve") == [], "what developing installed is enough to serve"


def test_a_python_that_is_too_old_is_told_so_in_one_sentence() -> None:
    source = (ROOT / "tools" / "bootstrap.py").read_text(encoding="utf-8").replace("(3, 11)", "(99, 0)", 1)
    done = subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert re.match(r"Threadline needs Python 3.11 or newer, and \S+ is 3\.\d+\.\d+", done.stderr)
