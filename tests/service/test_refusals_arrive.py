"""A refusal reaches a client that is still sending: node's fetch, Python's two clients and curl."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.npm_packages import NODE
from tests.service.running_service import CHAT, Client

BYTES = 20_000_000
TRIES = 5
NODE_SCRIPT = """
const [url, size, tries] = process.argv.slice(1);
const said = [];
for (let n = 0; n < tries; n++) {
  const response = await fetch(url, {
    method: "POST", headers: { "content-type": "application/json" }, body: "x".repeat(size),
  }).catch((error) => ({ status: String(error.cause ?? error), json: () => ({}) }));
  said.push([response.status, (await response.json()).code]);
}
console.log(JSON.stringify(said));
"""


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def by_http_client(url: str) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    connection.request("POST", parts.path, b"x" * BYTES, {"content-type": "application/json"})
    answer = connection.getresponse()
    code = json.loads(answer.read())["code"]
    connection.close()
    return answer.status, code


def by_urllib(url: str) -> tuple[int, str]:
    request = urllib.request.Request(url, b"x" * BYTES, {"content-type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())["code"]
    raise AssertionError("accepted")


@pytest.mark.req("R-05")
@pytest.mark.parametrize("send", [by_http_client, by_urllib])
async def test_a_413_reaches_python(client: Client, send: Callable[[str], tuple[int, str]]) -> None:
    for _ in range(TRIES):
        assert await asyncio.to_thread(send, client.url + CHAT) == (413, "body_too_large")


@pytest.mark.req("R-05")
async def test_a_413_reaches_node(client: Client) -> None:
    command: list[str | Path] = [
        NODE,
        "--input-type=module",
        "-e",
        NODE_SCRIPT,
        client.url + CHAT,
        str(BYTES),
        str(TRIES),
    ]
    ran = await asyncio.to_thread(run, command)
    assert json.loads(ran.stdout) == [[413, "body_too_large"]] * TRIES, ran.stderr


@pytest.mark.req("R-05")
@pytest.mark.parametrize("expect", ["", "Expect: 100-continue"])
async def test_a_413_reaches_curl(client: Client, tmp_path: Path, expect: str) -> None:
    curl = shutil.which("curl")
    assert curl is not None, "curl is not installed"
    body = tmp_path / "body"
    body.write_bytes(b"x" * BYTES)
    headers = ["-H", "content-type: application/json", "-H", expect or "Expect:"]
    command: list[str | Path] = [
        curl,
        "-sS",
        *headers,
        "--data-binary",
        f"@{body}",
        "-w",
        " %{http_code}",
        client.url + CHAT,
    ]
    for _ in range(TRIES):
        ran = await asyncio.to_thread(run, command)
        assert ran.stdout.endswith(" 413"), ran.stderr
        assert '"code":"body_too_large"' in ran.stdout


@pytest.mark.req("R-05")
async def test_a_body_of_unknown_length_over_the_limit_gets_its_413(client: Client) -> None:
    def send() -> tuple[int, str]:
        connection = http.client.HTTPConnection(urlsplit(client.url).netloc, timeout=30)
        pieces = iter([b"x" * 100_000] * 200)
        connection.request("POST", CHAT, pieces, {"content-type": "application/json"}, encode_chunked=True)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())["code"]
        connection.close()
        return found

    assert await asyncio.to_thread(send) == (413, "body_too_large")
