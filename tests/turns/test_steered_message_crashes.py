"""A process is killed while a message with the policy `steer` waits, or after it was taken in: it is answered once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

import threadline
from tests.turns.steered_process import LATE, QUESTION, Describer, settings_of
from threadline.bootstrap import Threadline
from threadline.core.messages import Message
from threadline.core.turns import Surface
from threadline.library import ThreadHandle

pytestmark = [
    pytest.mark.req("A-06"),
    pytest.mark.parametrize("database", ["file", "postgres"], indirect=True),
    pytest.mark.parametrize("hangs_in", ["tool", "model"]),
]
_LIMIT = 90


@pytest.fixture
async def tl(database: str, tenant_id: str) -> AsyncIterator[Threadline]:
    """This process: it uses the same database, and its agent does not hang."""
    agents = {"studio": Describer().agent()}
    async with threadline.open(settings=settings_of(database, tenant_id), agents=agents) as opened:
        yield opened


async def kill_one(tl: Threadline, surface: Surface, hangs_in: str) -> ThreadHandle:
    """A thread whose turn, and the message for it, another process left behind."""
    thread = await tl.as_user(surface=surface).create_thread()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.turns.steered_process",
        tl.settings.database, tl.settings.tenant, thread.id, surface, hangs_in, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), _LIMIT) == b"ready\n"
    process.kill()
    await process.wait()
    return thread


async def check_log(thread: ThreadHandle) -> Message:
    log = await thread.messages()
    assert [(message.role, message.text) for message in log] == [
        ("user", QUESTION),
        ("user", LATE),
        ("assistant", f"Told: {LATE}"),
    ]
    assert [turn.status for turn in await thread.turns()] == ["executed", "executed"]
    return log[-1]


async def test_who_asks_again_gets_one_answer_to_both(tl: Threadline, hangs_in: str) -> None:
    thread = await kill_one(tl, "api", hangs_in)
    async with asyncio.timeout(_LIMIT):
        late = thread.ask(LATE, key="k2", policy="steer")
        reply, again = await asyncio.gather(_reply(thread, QUESTION, "k1"), _reply(thread, LATE, "k2"))
        assert (await late.ended()).taken_by == reply.turn_id
    assert reply.id == again.id == (await check_log(thread)).id


async def test_on_a_channel_both_are_answered_without_being_asked_again(tl: Threadline, hangs_in: str) -> None:
    thread = await kill_one(tl, "slack", hangs_in)
    scope = tl.as_user().scope
    async with asyncio.timeout(_LIMIT):
        while await tl.store.scoped(scope).active_turns(thread.id):
            await tl.recovery.recover(scope)
            async with tl.store.watch(scope, thread.id) as watch:
                await watch.wait(0.1)
    await check_log(thread)


async def test_a_message_whose_turn_was_ended_is_answered_when_it_is_sent_again(tl: Threadline, hangs_in: str) -> None:
    """The first question is not repeated: its turn ends as interrupted, and the message is a question of its own."""
    thread = await kill_one(tl, "api", hangs_in)
    async with asyncio.timeout(_LIMIT):
        reply = await thread.ask(LATE, key="k2", policy="steer")
    assert reply.text == f"Told: {LATE}"
    texts = [message.text for message in await thread.messages()]
    assert (texts.count(LATE), texts.count(QUESTION), texts[-1]) == (1, 1, reply.text)


async def _reply(thread: ThreadHandle, question: str, key: str) -> Message:
    return await thread.ask(question, key=key, policy="steer" if key == "k2" else None)
