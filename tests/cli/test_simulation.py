"""`threadline channels simulate`: the channels against fake platforms."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import threadline
from tests.cli.conftest import Run
from tests.ports import free_port
from threadline.core.threads import Scope

KEYS = f'[channels]\nkey = "mine"\nkeys = {{ mine = "{base64.b64encode(bytes(32)).decode()}" }}\n'
SCRIPT = """\
hello
:link
My name is Ada.
:repeat
:telegram
:link
What did I say first?
:as bob
hello
:nonsense
"""


@pytest.mark.req("S3-04", "S3-15", "S3-17")
def test_a_conversation_continues_on_another_platform(run: Run, home: Path) -> None:
    result = run("channels", "simulate", "slack", "telegram", "--database", "kept.db", stdin=SCRIPT)
    assert (result.code, result.err) == (0, "")
    turns = result.out.split("> ")
    assert "Simulating slack and telegram" in turns[0]
    assert "This account is not linked yet" in turns[1]
    assert "This account is linked now" in turns[3]
    assert "You said: “My name is Ada.”" in turns[4]
    assert "(duplicate: no reply)" in turns[5]
    assert "The first thing you said was “My name is Ada.”" in turns[9]
    assert turns[10].startswith(":as bob\n")
    assert "This account is not linked yet" in turns[11]
    assert ":link" in turns[12]
    # The terminal lists the same thread for the user who created the codes.
    (thread,) = run("threads", "list", "--json", "--database", "kept.db").json()["threads"]
    assert thread["messageCount"] == 4


def test_credentials_of_a_real_platform_are_not_replaced(run: Run, home: Path) -> None:
    (home / "threadline.toml").write_text(KEYS)

    async def store() -> None:
        async with threadline.open("kept.db") as opened:
            secrets = {"signing_secret": "real", "bot_token": "xoxb-real"}
            await opened.messaging.credentials.put(Scope(role="admin"), "slack", secrets)

    asyncio.run(store())
    result = run("channels", "simulate", "slack", "--database", "kept.db", stdin="hello\n")
    assert result.code == 4
    assert "credentials for the real slack" in result.err


def test_an_unknown_platform_is_named(run: Run) -> None:
    result = run("channels", "simulate", "carrier-pigeon")
    assert result.code == 2
    assert "'carrier-pigeon'" in result.err


@pytest.fixture
def served(home: Path) -> Iterator[tuple[str, int]]:
    """A running service whose settings point at the fake Slack."""
    port = free_port()
    (home / "threadline.toml").write_text(f'{KEYS}[channels.slack]\napi = "http://127.0.0.1:{port}/api"\n')
    command = [sys.executable, "-m", "threadline", "serve", "--port", "0", "--database", "served.db"]
    env = {**os.environ, "HOME": str(home), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            yield service.stdout.readline().split()[-1], port
        finally:
            service.terminate()
            service.wait(30)


def test_a_running_service_can_be_used(run: Run, served: tuple[str, int]) -> None:
    url, port = served
    result = run("channels", "simulate", "slack", "--url", url, "--port", str(port), stdin=":link\ncalculate 6*7\n")
    assert (result.code, result.err) == (0, "")
    assert "This account is linked now" in result.out
    assert "42" in result.out


def test_a_service_that_does_not_answer_is_named(run: Run) -> None:
    result = run(
        "channels", "simulate", "slack", "--url", f"http://127.0.0.1:{free_port()}", "--port", str(free_port())
    )
    assert result.code == 1
    assert "no answer from" in result.err
