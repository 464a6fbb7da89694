"""`threadline channels connect slack` in a process of its own, killed and stopped at any instant."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from threadline.bootstrap import open as open_threadline
from threadline.core.threads import Scope
from threadline.settings import load
from threadline.testing.platforms import FakeSlack, SlackSockets
from threadline.testing.platforms.slack import direct
from threadline.vault import new_key


@asynccontextmanager
async def workspace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeSlack]:
    """A Slack that a machine without a public address is connected to, with a linked person."""
    sockets = SlackSockets(ack_seconds=3.0, retry_seconds=[0.2] * 100)
    async with FakeSlack(sockets=sockets) as slack:
        monkeypatch.setenv("THREADLINE_CHANNELS__SLACK__API", slack.api)
        monkeypatch.setenv("THREADLINE_VAULT__KEYS__FIRST", new_key())
        async with open_threadline(settings=load()) as threadline:
            admin = Scope("local", "local", "admin")
            secrets = {name: value for name, value in slack.secrets.items() if name != "signing_secret"}
            await threadline.messaging.credentials.put(admin, "slack", secrets)
            await threadline.messaging.links.put(admin, "slack", slack.person, "ada", revoked=False)
        yield slack


async def start() -> Process:
    command = (sys.executable, "-m", "threadline", "channels", "connect")
    return await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.req("H-04")
async def test_it_answers_without_a_public_address_and_stops_in_order(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workspace(monkeypatch) as slack:
        process = await start()
        try:
            await slack.sockets.until_connected()
            await slack.push(slack.write("My name is Ada"))
            (reply,) = await slack.replies(1, seconds=60)
            assert "My name is Ada" in reply.text
        finally:
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert b"Receiving from slack for tenant local" in out


@pytest.mark.req("H-04")
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
async def test_no_kill_loses_a_message_or_doubles_an_answer(
    home: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    chance = random.Random(7)
    async with workspace(monkeypatch) as slack:
        pushed: list[asyncio.Task[object]] = []
        for number in range(kills):
            process = await start()
            await slack.sockets.until_connected(slack.sockets.opened + 1, seconds=120)
            bodies = [slack.write(f"this is message {number}.{each}.") for each in range(3)]
            pushed += [asyncio.create_task(slack.push(body)) for body in bodies]
            # A kill may come before, while or after a message is stored, answered or acknowledged.
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            process.kill()
            await process.communicate()
        process = await start()
        try:
            # Everything may be answered already: a process that still starts does not know how to stop in order.
            await slack.sockets.until_connected(slack.sockets.opened + 1, seconds=120)
            await asyncio.gather(*pushed)
            said = [reply.text for reply in await slack.replies(3 * kills, seconds=240)]
        finally:
            process.send_signal(signal.SIGTERM)
            await process.communicate()
        assert process.returncode == 0
        expected = {f"message {number}.{each}." for number in range(kills) for each in range(3)}
        assert {text for text in expected if any(text in reply for reply in said)} == expected
        assert len(slack.sent) == 3 * kills


@pytest.mark.req("H-01")
async def test_a_stream_that_a_kill_cut_off_becomes_the_reply_of_the_next_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADLINE_CHANNELS__SLACK__DIRECT_REPLIES", "thread")
    async with workspace(monkeypatch) as slack:
        process = await start()
        await slack.sockets.until_connected()
        await slack.push(slack.write("slow 4"))
        await slack.until(lambda: any(sign.text for sign in slack.signs), seconds=120)
        process.kill()
        await process.communicate()
        conversation = direct(slack.person)
        (partial,) = slack.messages_of_bot(conversation)
        process = await start()
        try:
            (reply,) = await slack.replies(1, seconds=240)
        finally:
            process.send_signal(signal.SIGTERM)
            await process.communicate()
        assert slack.messages_of_bot(conversation) == [reply.text]
        assert len(reply.text) >= len(partial)
