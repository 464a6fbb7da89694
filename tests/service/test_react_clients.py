"""`useChat` of @ai-sdk/react and both runtimes of assistant-ui, unmodified, in StrictMode against a service."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.npm_packages import NODE, install
from tests.service.conftest import SERVICE
from tests.service.npm_drive import HERE, Breath, Drive, Node
from tests.service.running_service import message_text, serving
from tests.service.test_ai_clients import said
from threadline.agents.rehearsal import RehearsalAgent
from threadline.bootstrap import open as open_threadline
from threadline.settings import Settings

CLIENTS = ["use-chat", "assistant-ui", "data-stream"]


@pytest.fixture(scope="session")
def react() -> Iterator[Node]:
    command: list[str | Path] = [NODE, install(HERE, "ai") / "react.mjs"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        yield node
        node.kill()


@pytest.fixture
async def breath() -> AsyncIterator[Breath]:
    made = Breath()
    yield made
    made.let_go()


@pytest.fixture(params=CLIENTS)
async def drive(request: pytest.FixtureRequest, react: Node, breath: Breath) -> AsyncIterator[Drive]:
    agents = {"breathing": RehearsalAgent(pace=0.001, sleep=breath)}
    settings = Settings(database=":memory:", service=SERVICE, agent="breathing")
    async with open_threadline(settings=settings, agents=agents) as tl, serving(tl) as client:
        yield Drive(react, client, request.param)


def first_sentences(shown: dict[str, Any]) -> list[str]:
    return [
        text.partition("”.")[0] + "”." if text.startswith("You said") else text
        for text in (message["text"] for message in shown["messages"])
    ]


async def stored_texts(drive: Drive) -> list[str]:
    return [message_text(message) for message in await drive.stored()]


@pytest.mark.req("S1-03", "S1-29", "S1-32")
async def test_a_page_sends_regenerates_and_edits(drive: Drive) -> None:
    *_, two, again, edited, first = shown = await drive(
        ["send", "One"], ["send", "Two"], ["regenerate"], ["edit", 2, "Zwei"], ["edit", 0, "Uno"]
    )
    assert [each["errors"] for each in shown] == [[]] * 5
    assert first_sentences(two) == first_sentences(again) == ["One", said("One"), "Two", said("Two")]
    assert first_sentences(edited) == ["One", said("One"), "Zwei", said("Zwei")]
    assert first_sentences(first) == ["Uno", said("Uno")]
    (reloaded,) = await drive.then(["reload"])
    assert first_sentences(reloaded) == first_sentences(first)
    assert await stored_texts(drive) == [message["text"] for message in first["messages"]]


@pytest.mark.req("C-04", "S1-32")
async def test_a_page_that_stopped_asks_the_next_question(drive: Drive, breath: Breath) -> None:
    breath.hold()
    (left,) = await drive(["leave", "slow 20"])
    breath.let_later_turns_go()
    (after,) = await drive.then(["send", "Hello"])
    assert after["errors"] == []
    assert first_sentences(after)[2:] == ["Hello", said("Hello")]
    stored = await drive.stored()
    assert sorted(message["role"] for message in stored) == ["assistant", "assistant", "user", "user"]
    statuses = [message.get("metadata", {}).get("status") for message in stored]
    assert [status for status in statuses if status is not None] == ["stopped"]
    assert left["messages"][1]["text"] != ""


@pytest.mark.req("S1-14", "S1-26", "S1-32")
@pytest.mark.parametrize("drive", ["use-chat"], indirect=True)
async def test_a_page_that_is_reloaded_during_an_answer_continues_it(drive: Drive, breath: Breath) -> None:
    breath.hold()
    await drive(["leaveByReload", "slow 2"])
    breath.let_go()
    (shown,) = await drive.then(["finish"])
    assert (shown["errors"], len(shown["messages"])) == ([], 2)
    assert shown["messages"][1]["text"] == (await stored_texts(drive))[1]
