"""`threadline serve` as a process: it prints its address, and a signal stops it without losing anything."""

from __future__ import annotations

import html
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from threadline.cli.main import main


@contextmanager
def served(database: Path, *, port: int | None = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "threadline", "serve", "--port", str(port), "--database", str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"on (http://\S+)$", line)
            assert found, line + process.communicate()[1]
            yield found[1], process
        finally:
            process.kill()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body.decode()


def ask(url: str, text: str) -> urllib.request.Request:
    body = json.dumps({"id": "key", "message": {"role": "user", "content": text}}).encode()
    return urllib.request.Request(f"{url}/api/v1/ai/chat", body, {"content-type": "application/json"})


def test_every_command_on_the_welcome_page_works(tmp_path: Path) -> None:
    with served(tmp_path / "t.db") as (url, _):
        commands = [html.unescape(each) for each in re.findall(r"<pre>(.*?)</pre>", get(f"{url}/welcome"), re.DOTALL)]
        said = []
        for command in commands:
            assert command.startswith("curl ")
            shell = ["sh", "-c", f"{command} -sS --fail"]
            ran = subprocess.run(shell, check=False, capture_output=True, text=True, timeout=30)
            assert ran.returncode == 0, ran.stderr
            said.append(ran.stdout)
    assert len(said) == 5
    assert said[0].endswith("data: [DONE]\n\n")
    assert "“Hello”" in "".join(re.findall(r'"delta":"([^"]*)"', said[1]))
    assert len(json.loads(said[2])["messages"]) == 4
    assert len(json.loads(said[3])["hits"]) >= 1
    assert json.loads(said[4])["messageCount"] == 2


def test_a_stopping_service_lets_its_turns_end(tmp_path: Path) -> None:
    with served(tmp_path / "t.db") as (url, process):
        with urllib.request.urlopen(ask(url, "slow 1"), timeout=30) as answer:
            answer.readline()
            process.send_signal(signal.SIGTERM)
            rest = answer.read().decode()
        assert rest.endswith("data: [DONE]\n\n")
        assert '"type":"finish"' in rest
        assert process.wait(30) == 0
    with served(tmp_path / "t.db") as (url, _):
        roles = [message["role"] for message in json.loads(get(f"{url}/api/v1/ai/threads/key"))["messages"]]
    assert roles == ["user", "assistant"]


_FIRST_TEXTS = """
import asyncio, re
from threadline.bootstrap import open as open_threadline
from threadline.service.app import lifespan
from threadline.settings import Settings

async def main():
    async with open_threadline(settings=Settings(database=":memory:")) as tl, lifespan(tl, tl.settings.service):
        compiled, compile_ = [], re._compiler.compile
        re._compiler.compile = lambda *given: compiled.append(given) or compile_(*given)
        tl.sealer.masker.stream().feed("Hello there.")
        tl.sealer.masker.mask_json({"text": "Hello there."})
        print(len(compiled))

asyncio.run(main())
"""


def test_the_first_turn_of_a_service_compiles_no_masking_rules() -> None:
    ran = subprocess.run([sys.executable, "-c", _FIRST_TEXTS], check=False, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org"])
def test_a_public_address_without_authentication_is_refused_at_start(
    tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--host", host, "--database", str(tmp_path / "t.db")]) == 2
    assert "can be reached from other machines" in capsys.readouterr().err
