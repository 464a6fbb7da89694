"""`threadline matrix run`, as the page about it says, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from tests.conventions.pages import blocks
from tests.conventions.rules import ROOT
from tests.matrix.bot_fixtures import World
from tests.matrix.people import PATIENCE
from tests.matrix.synapse import Synapse
from threadline.cli.main import main

THREADLINE = Path(sys.executable).parent / "threadline"
PAGE = (ROOT / "docs" / "matrix.md").read_text(encoding="utf-8")


def settings_of_the_page(world: World) -> str:
    shown = next(block.text for block in blocks(PAGE) if block.language == "toml")
    told = shown.replace("https://matrix.example.org", world.synapse.url).replace("@bot:example.org", world.bot_id)
    assert told.count(world.tag) == 1
    return told


async def start(folder: Path, *words: str, **environment: str) -> asyncio.subprocess.Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("THREADLINE_", "XDG_"))}
    return await asyncio.create_subprocess_exec(
        THREADLINE, *(words or ("matrix", "run")), cwd=folder, env={**kept, "HOME": str(folder), **environment},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def first_line(bot: asyncio.subprocess.Process) -> str:
    assert bot.stdout is not None
    return (await asyncio.wait_for(bot.stdout.readline(), PATIENCE)).decode()


async def end(bot: asyncio.subprocess.Process) -> str:
    """Ends it as an operator would; its log."""
    bot.terminate()
    _, log = await asyncio.wait_for(bot.communicate(), PATIENCE)
    assert bot.returncode == 0, log
    return log.decode()


@pytest.mark.req("S2-20", "S2-15")
async def test_the_page_leads_to_a_bot_that_answers_and_keeps_its_device(world: World, tmp_path: Path) -> None:
    (tmp_path / "threadline.toml").write_text(settings_of_the_page(world))
    alice = await world.person("alice")
    bot = await start(tmp_path, THREADLINE_MATRIX__PASSWORD=world.matrix.password)
    assert await first_line(bot) == f"{world.bot_id} is listening on {world.synapse.url}\n"
    room = await world.room_with(alice)
    await alice.ask(room, world.bot_id, "Hello")
    log = await end(bot)
    assert world.matrix.password not in log
    device = tmp_path / ".local/share/threadline/matrix/device.json"
    kept = json.loads(device.read_bytes())
    assert stat.S_IMODE(device.stat().st_mode) == 0o600
    assert kept["token"] not in log
    again = await start(tmp_path)
    assert "is listening" in await first_line(again)
    assert "2 messages" in (await alice.ask(room, world.bot_id, "!context")).text
    second = await start(tmp_path)
    _, said = await asyncio.wait_for(second.communicate(), PATIENCE)
    assert (second.returncode, said.decode()) == (2, f"threadline: another bot is running on {device.parent}\n")
    assert json.loads(device.read_bytes()) == kept
    await end(again)


async def test_the_service_runs_the_bot_where_the_settings_say_so(world: World, tmp_path: Path) -> None:
    (tmp_path / "threadline.toml").write_text(settings_of_the_page(world) + "with_service = true\n")
    alice = await world.person("alice")
    service = await start(tmp_path, "serve", "--port", "0", THREADLINE_MATRIX__PASSWORD=world.matrix.password)
    assert "Serving" in await first_line(service)
    room = await world.room_with(alice)
    await alice.ask(room, world.bot_id, "Hello")
    await end(service)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "the Matrix bot needs `homeserver` and `user` in the section [matrix]"),
        ({"THREADLINE_MATRIX__USER": "@nobody:threadline.test"}, "set THREADLINE_MATRIX__PASSWORD or"),
        (
            {"THREADLINE_MATRIX__USER": "@nobody:threadline.test", "THREADLINE_MATRIX__PASSWORD": "wrong"},
            "the homeserver rejected the bot: Invalid username or password (M_FORBIDDEN)",
        ),
        (
            {"THREADLINE_MATRIX__USER": "@nobody:threadline.test", "THREADLINE_MATRIX__TOKEN": "wrong"},
            "the homeserver rejected the bot: .*M_UNKNOWN_TOKEN",
        ),
    ],
)
def test_a_bot_that_cannot_log_in_says_why_in_one_line(
    synapse: Synapse,
    tmp_path: Path,
    settings: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    address = {"THREADLINE_MATRIX__HOMESERVER": synapse.url} if settings else {}
    for name, value in {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), **settings, **address}.items():
        monkeypatch.setenv(name, value)
    assert main(["matrix", "run"]) == 2
    log = capfd.readouterr().err
    assert re.fullmatch(rf"threadline: {said if '.*' in said else re.escape(said)}.*\n", log)


@pytest.mark.parametrize(
    ("homeserver", "user", "said"),
    [
        ("matrix.example.org", "@bot:example.org", "`homeserver` must be an address such as https://matrix"),
        ("ftp://matrix.example.org", "@bot:example.org", "`homeserver` must be an address such as https://matrix"),
        ("https://matrix.example.org", "bot", "`user` must be a full id such as @bot:example.org, got 'bot'"),
    ],
)
def test_settings_that_can_never_work_are_refused(
    tmp_path: Path,
    homeserver: str,
    user: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"HOMESERVER": homeserver, "USER": user, "PASSWORD": "x"}
    for name, value in {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name, value in named.items():
        monkeypatch.setenv(f"THREADLINE_MATRIX__{name}", value)
    assert main(["matrix", "run"]) == 2
    assert said in capfd.readouterr().err


async def test_a_homeserver_that_is_not_there_is_named_with_the_cause(tmp_path: Path) -> None:
    settings = {"HOMESERVER": "http://127.0.0.1:1", "USER": "@bot:example.org", "PASSWORD": "x"}
    bot = await start(tmp_path, **{f"THREADLINE_MATRIX__{name}": value for name, value in settings.items()})
    assert bot.stderr is not None
    line = (await asyncio.wait_for(bot.stderr.readline(), PATIENCE)).decode()
    await end(bot)
    assert "WARNING" in line
    assert "http://127.0.0.1:1: Cannot connect to host 127.0.0.1:1" in line


def test_a_database_and_a_service_are_not_given_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["matrix", "run", "--server", "http://127.0.0.1:1", "--database", "x.db"]) == 2
    said = "threadline: --database cannot be used with --server: the service has its own database\n"
    assert capfd.readouterr().err == said
    assert list(tmp_path.iterdir()) == []
