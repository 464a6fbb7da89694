"""A real homeserver for tests: Synapse from PyPI in an environment of its own, one server per test run.

It is installed once into `.tools/`, as `synapse.lock` pins it, and started by the first test that needs it: on
loopback, on SQLite in a temporary folder, with people registered by a shared secret. All workers of one pytest-xdist
run share it. Each worker holds a lock while it runs; `synapse_keeper.py` stops the server when no worker holds it,
so that a killed run leaves no server behind.
"""

from __future__ import annotations

import base64
import datetime as dt
import fcntl
import functools
import hashlib
import hmac
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.ports import free_port
from tools.bootstrap import ROOT, uv_environment

SERVER_NAME = "threadline.test"
LOCK = Path(__file__).with_name("synapse.lock")
GUARD = Path(__file__).with_name("synapse_keeper.py")
TOOLS = ROOT / ".tools"
UV = ROOT / ".venv" / "bin" / "uv"
START_SECONDS = 60.0

Kind: TypeAlias = Literal["usual", "limited", "east", "west"]
_VALID = dt.timedelta(days=1)

_held: list[int | subprocess.Popen[bytes]] = []


class NoWheel(Exception):
    """Synapse is not published for this kind of machine."""


class Synapse:
    """The homeserver of this run, with its registration secret."""

    def __init__(self, url: str, secret: str) -> None:
        self.url = url
        self._secret = secret

    def register(self, name: str, password: str) -> str:
        """A new account; its full id."""
        nonce = self.call("GET", "/_synapse/admin/v1/register")["nonce"]
        said = f"{nonce}\0{name}\0{password}\0notadmin"
        mac = hmac.new(self._secret.encode(), said.encode(), hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": password, "admin": False, "mac": mac}
        found: str = self.call("POST", "/_synapse/admin/v1/register", body)["user_id"]
        return found

    def call(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


@functools.cache
def installed() -> Path:
    """Synapse's own Python. Runs that start together wait for the first one."""
    home = TOOLS / f"synapse-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}-{sys.version_info[1]}"
    TOOLS.mkdir(exist_ok=True)
    with _locked(home.with_suffix(".lock")):
        if not home.is_dir():
            environment = {**os.environ, **uv_environment()}
            work = Path(tempfile.mkdtemp(dir=TOOLS)) / "venv"
            make = ["venv", "--quiet", "--python", sys.executable, str(work)]
            install = ["pip", "install", "--quiet", "--python", str(work), "--require-hashes", "-r", str(LOCK)]
            for arguments in (make, [*install, "--only-binary", "matrix-synapse"]):
                _run([UV, *arguments], environment)
            work.rename(home)
            work.parent.rmdir()
    return home / "bin" / "python"


def _run(command: list[str | Path], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, check=False, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if "no wheels with a matching" in done.stdout:
        raise NoWheel("there is no wheel of Synapse for this kind of machine")
    if done.returncode:
        raise RuntimeError(f"Synapse could not be installed:\n{done.stdout}")


@functools.cache
def shared_server(kind: Kind = "usual") -> Synapse:
    """The server of this run, started by the first test that needs it. `limited` has Synapse's own rate limits; `east`
    and `west` talk to each other."""
    python = installed()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")
    home = Path(tempfile.gettempdir()) / f"threadline-synapse-{run}-{kind}"
    home.mkdir(exist_ok=True)
    users = os.open(home / "users", os.O_CREAT | os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_SH)
    # Held until this process ends; the kernel lets go of it, whatever ends the process.
    _held.append(users)
    with _locked(home / "starting"):
        told = home / "server.json"
        if not told.exists():
            told.write_text(json.dumps(_start(python, home, kind)))
    server = Synapse(**json.loads(told.read_text()))
    _wait_for(server, home)
    return server


def _start(python: Path, home: Path, kind: Kind) -> dict[str, str]:
    port, secret = free_port(), secrets.token_hex(16)
    seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    (home / "signing.key").write_text(f"ed25519 a_test {seed}\n")
    configuration = {**_configuration(home, port, secret), **({} if kind == "limited" else _UNLIMITED)}
    if kind in ("east", "west"):
        configuration = _federated(home, configuration)
    (home / "homeserver.yaml").write_text(json.dumps(configuration))
    with (home / "log").open("wb") as log:
        command = [sys.executable, "-I", str(GUARD), str(home), str(python)]
        _held.append(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        )
    return {"url": f"http://127.0.0.1:{port}", "secret": secret}


_MANY = {"per_second": 10_000, "burst_count": 10_000}
_UNLIMITED: dict[str, Any] = {
    "rc_message": _MANY,
    "rc_joins": {"local": _MANY, "remote": _MANY},
    "rc_joins_per_room": _MANY,
    "rc_room_creation": _MANY,
    "rc_invites": {"per_room": _MANY, "per_user": _MANY, "per_issuer": _MANY},
    "rc_login": {"address": _MANY, "account": _MANY, "failed_attempts": _MANY},
}


def _configuration(home: Path, port: int, secret: str) -> dict[str, Any]:
    """Synapse reads YAML, of which JSON is a part."""
    return {
        "server_name": SERVER_NAME,
        "pid_file": str(home / "pid"),
        "listeners": [
            {"port": port, "type": "http", "bind_addresses": ["127.0.0.1"], "resources": [{"names": ["client"]}]}
        ],
        "database": {"name": "sqlite3", "args": {"database": str(home / "homeserver.db")}},
        "signing_key_path": str(home / "signing.key"),
        "media_store_path": str(home / "media"),
        "log_config": None,
        "registration_shared_secret": secret,
        "macaroon_secret_key": secret,
        "form_secret": secret,
        "bcrypt_rounds": 4,
        "report_stats": False,
        "trusted_key_servers": [],
        "presence": {"enabled": False},
        "caches": {"sync_response_cache_duration": "0s"},
        "url_preview_enabled": False,
    }


def _federated(home: Path, configuration: dict[str, Any]) -> dict[str, Any]:
    """A server whose name is its own address, so that others need neither DNS nor a well-known file to find it."""
    port = free_port()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + _VALID)
    certificate = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
    pem = serialization.Encoding.PEM
    (home / "tls.crt").write_bytes(certificate.sign(key, hashes.SHA256()).public_bytes(pem))
    (home / "tls.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    listener = {"port": port, "type": "http", "tls": True, "bind_addresses": ["127.0.0.1"]}
    return {
        **configuration,
        "server_name": f"localhost:{port}",
        "listeners": [*configuration["listeners"], {**listener, "resources": [{"names": ["federation"]}]}],
        "tls_certificate_path": str(home / "tls.crt"),
        "tls_private_key_path": str(home / "tls.key"),
        "federation_verify_certificates": False,
        # Loopback is refused by default.
        "ip_range_blacklist": [],
        "federation_ip_range_blacklist": [],
    }


def _wait_for(server: Synapse, home: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            server.call("GET", "/_matrix/client/versions")
            return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > end or (home / "ended").exists():
                raise RuntimeError(f"Synapse did not start: {(home / 'log').read_text()[-2000:]}") from None
            time.sleep(0.05)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
