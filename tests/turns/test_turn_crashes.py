"""Processes are killed at random instants in the middle of turns with tools: nothing is lost, doubled or run twice."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.turns.killable_turns import build_threadline
from threadline.clock import SystemClock
from threadline.core.messages import Message
from threadline.core.parts import ToolPart
from threadline.databases import open_store
from threadline.settings import Settings

KILLS = 100
MOMENTS = 5
LONGEST = 0.03


@pytest.mark.req("S1-13", "S1-16", "S3-23", "S4-09")
@pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)
async def test_kills_lose_and_duplicate_no_message_and_repeat_no_effect(
    database: str, tmp_path: Path, slow: bool
) -> None:
    effects = tmp_path / "effects"
    effects.touch()
    store = await open_store(Settings(database=database), SystemClock())
    tl = build_threadline(database, store, str(effects))
    thread = await tl.as_user().create_thread()
    accepted = await lives(database, str(effects), thread.id, KILLS * 10 if slow else KILLS)
    while await store.scoped(tl.as_user().scope).active_turns(thread.id):
        await tl.recovery.recover(tl.as_user().scope)
        await asyncio.sleep(0.02)
    last = await thread.ask("the last order")
    assert last.text.endswith("Paid.")
    messages = await thread.messages()
    await tl.runner.close()
    await store.close()
    check_requests(messages, accepted)
    check_effects(effects.read_text().splitlines())
    check_replies(messages)


@pytest.mark.req("S1-13", "S1-16")
@pytest.mark.parametrize("database", ["file"], indirect=True)
async def test_kills_between_approval_and_effect_repeat_no_effect(database: str, tmp_path: Path, slow: bool) -> None:
    effects = tmp_path / "effects"
    effects.touch()
    store = await open_store(Settings(database=database), SystemClock())
    tl = build_threadline(database, store, str(effects), approving=True)
    thread = await tl.as_user().create_thread()
    accepted = await lives(database, str(effects), thread.id, KILLS * 10 if slow else KILLS // 2, "approving")
    while await store.scoped(tl.as_user().scope).active_turns(thread.id):
        await tl.recovery.recover(tl.as_user().scope)
        await asyncio.sleep(0.02)
    messages = await thread.messages()
    await tl.runner.close()
    await store.close()
    check_requests(messages, accepted)
    check_effects(effects.read_text().splitlines())
    states = {part.state for message in messages for part in message.parts if isinstance(part, ToolPart)}
    assert "output-available" in states


async def lives(database: str, effects: str, thread_id: str, kills: int, mode: str = "plain") -> list[int]:
    """So many children, one after the other; the requests they were told are safe."""
    chance = random.Random(7)
    nursery = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.turns.killable_turns", database, effects, thread_id, mode,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    accepted: list[int] = []
    for _ in range(kills):
        first = accepted[-1] + 1 if accepted else 0
        nursery.stdin.write(f"{first} {chance.randint(0, MOMENTS)} {chance.uniform(0, LONGEST)}\n".encode())
        while not (line := await asyncio.wait_for(nursery.stdout.readline(), 60)).startswith(b"died"):
            accepted.append(int(line.split()[1]))
        assert line == b"died -9\n"
    nursery.stdin.close()
    await nursery.wait()
    assert accepted, "they were killed before they could say anything"
    return accepted


def check_requests(messages: list[Message], accepted: list[int]) -> None:
    """The log contains each accepted request once; it may also contain one that was stored but not acknowledged."""
    asked = Counter(message.text for message in messages if message.role == "user")
    assert set(asked.values()) == {1}
    assert {f"order{n}" for n in accepted} <= set(asked)
    assert [message.seq for message in messages] == list(range(len(messages)))


def check_effects(orders: list[str]) -> None:
    assert [order for order, times in Counter(orders).items() if times > 1] == []
    assert len(orders) > 0


def check_replies(messages: list[Message]) -> None:
    """One reply to a turn at the most; in a whole one, every call has its result."""
    replies = [message for message in messages if message.role == "assistant"]
    assert max(Counter(message.turn_id for message in replies).values()) == 1
    for message in replies:
        calls = [part for part in message.parts if isinstance(part, ToolPart)]
        if "status" not in message.metadata:
            assert {call.name for call in calls} <= {"look", "pay"}
            assert all(call.is_answered for call in calls)
