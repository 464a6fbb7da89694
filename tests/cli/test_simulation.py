"""`threadline channels simulate`: the channels, tried by somebody without an account anywhere."""

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
def test_a_conversation_goes_on_from_one_platform_to_the_next(run: Run, home: Path) -> None:
    ran = run("channels", "simulate", "slack", "telegram", "--database", "kept.db", stdin=SCRIPT)
    assert (ran.code, ran.err) == (0, "")
    said = ran.out.split("> ")
    assert "Simulating slack and telegram" in said[0]
    assert "This account is not linked yet" in said[1]
    assert "This account is linked now" in said[3]
    assert "You said: “My name is Ada.”" in said[4]
    assert "(duplicate: no reply)" in said[5]
    assert "The first thing you said was “My name is Ada.”" in said[9]
    assert said[10].startswith(":as bob\n")
    assert "This account is not linked yet" in said[11]
    assert ":link" in said[12]
    # The same thread is there in the terminal, under the user who made the codes.
    (thread,) = run("threads", "list", "--json", "--database", "kept.db").json()["threads"]
    assert thread["messageCount"] == 4


def test_a_database_that_talks_to_the_real_platform_is_left_alone(run: Run, home: Path) -> None:
    (home / "threadline.toml").write_text(KEYS)

    async def store() -> None:
        async with threadline.open("kept.db") as opened:
            secrets = {"signing_secret": "real", "bot_token": "xoxb-real"}
            await opened.messaging.credentials.put(Scope(role="admin"), "slack", secrets)

    asyncio.run(store())
    ran = run("channels", "simulate", "slack", "--database", "kept.db", stdin="hello\n")
    assert ran.code == 4
    assert "credentials for the real slack" in ran.err


def test_a_platform_nobody_stands_in_for_is_named(run: Run) -> None:
    ran = run("channels", "simulate", "carrier-pigeon")
    assert ran.code == 2
    assert "'carrier-pigeon'" in ran.err


@pytest.fixture
def served(home: Path) -> Iterator[tuple[str, int]]:
    """A service that runs already and was told where Slack's stand-in will be."""
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


def test_a_service_that_runs_already_can_be_talked_to(run: Run, served: tuple[str, int]) -> None:
    url, port = served
    ran = run("channels", "simulate", "slack", "--url", url, "--port", str(port), stdin=":link\ncalculate 6*7\n")
    assert (ran.code, ran.err) == (0, "")
    assert "This account is linked now" in ran.out
    assert "42" in ran.out


def test_a_service_that_is_not_there_is_said_so(run: Run) -> None:
    ran = run("channels", "simulate", "slack", "--url", f"http://127.0.0.1:{free_port()}", "--port", str(free_port()))
    assert ran.code == 1
    assert "nobody answers at" in ran.err
