"""Messages and state of a framework are stored together: a process that is killed leaves both or neither."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.frameworks.killed_writer import ITEMS, SESSION
from threadline.adapters.adk import ThreadlineSessionService
from threadline.adapters.langgraph import ThreadlineSaver
from threadline.adapters.openai_agents import ThreadlineSession

DATABASE = os.environ["FRAMEWORK_TEST_DATABASE"]
KILLS = 4
WRITER = Path(__file__).with_name("killed_writer.py")


async def langgraph(opened: threadline.Threadline) -> tuple[int, int]:
    config: Any = {"configurable": {"thread_id": SESSION, "checkpoint_ns": ""}}
    found = await ThreadlineSaver(opened.as_user()).aget_tuple(config)
    assert found is not None
    values = found.checkpoint["channel_values"]
    shown = await (await opened.as_user().thread(SESSION)).messages()
    assert [message.text for message in shown] == [message.content for message in values["messages"]]
    return len(values["messages"]), values["step"] + 1


async def adk(opened: threadline.Threadline) -> tuple[int, int]:
    service = ThreadlineSessionService(opened)
    session = await service.get_session(app_name="app", user_id="ada", session_id=SESSION)
    assert session is not None
    steps = {session.state[key] for key in ("step", "user:step", "app:step")}
    assert len(steps) == 1
    return len(session.events), steps.pop() + 1


async def openai_agents(opened: threadline.Threadline) -> tuple[int, int]:
    items = await ThreadlineSession(ITEMS, opened.as_user()).get_items()
    shown = await (await opened.as_user().thread(ITEMS)).messages()
    assert [message.text for message in shown] == [item["content"] for item in items]
    assert len(items) % 2 == 0
    return len(items) // 2, len(shown) // 2


@pytest.mark.parametrize("read", [langgraph, adk, openai_agents], ids=lambda read: read.__name__)
async def test_a_killed_process_leaves_messages_and_state_together(read: Any) -> None:
    done = -1
    for _ in range(KILLS):
        done = write_until_killed(read.__name__, done)
        async with threadline.open(DATABASE) as opened:
            messages, state = await read(opened)
        assert messages == state
        assert messages in (done + 1, done + 2)


def write_until_killed(framework: str, before: int) -> int:
    """The last step that returned. `before` is that of the process before."""
    command = [sys.executable, str(WRITER), framework, DATABASE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = done = int(process.stdout.readline())
        assert first > before, "what was stored before the last kill is there"
        while done < first + 5:
            done = int(process.stdout.readline())
        # In the middle of a step: the next one has begun.
        process.kill()
        return max([done, *(int(line) for line in process.stdout if line.endswith("\n"))])
