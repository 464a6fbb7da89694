"""A process is killed in the middle of an answer, and what comes right after it does not wait for its lease.

With the settings as they are shipped: a lease lasts 30 seconds. The limits here are far below that and far above what
is needed, because the machine may be busy.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

import threadline
from tests.turns.dying_process import WORDS, settings_of, tell
from threadline.bootstrap import Threadline
from threadline.core.events import Restart, TextDelta
from threadline.core.turns import Surface
from threadline.library import ThreadHandle

pytestmark = pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)
_QUICK = 15.0
_LEASE_SECONDS = 30.0
_QUESTION = "Tell me a story"


@pytest.fixture
async def tl(database: str, tenant_id: str) -> AsyncIterator[Threadline]:
    """This process: it uses the same database and answers at once."""
    async with threadline.open(settings=settings_of(database, tenant_id), agents={"teller": tell}) as opened:
        yield opened


async def begin(tl: Threadline, thread: ThreadHandle, surface: Surface, *options: str) -> asyncio.subprocess.Process:
    """Another process that has begun to answer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.turns.dying_process",
        tl.settings.database, tl.settings.tenant, thread.id, _QUESTION, surface, *options,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    return process


async def kill(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


async def log(thread: ThreadHandle) -> list[tuple[str, str, Any]]:
    return [(each.role, each.text, each.metadata.get("status")) for each in await thread.messages()]


WHOLE = "".join(WORDS)
PARTIAL = "".join(WORDS[:2])
ANSWERED = [("user", _QUESTION, None), ("assistant", WHOLE, None)]


@pytest.mark.req("R-01", "R-02", "S1-25")
@pytest.mark.parametrize("surface", ["web", "api", "cli", "slack"])
async def test_the_same_key_continues_the_turn_at_once(tl: Threadline, surface: Surface) -> None:
    me = tl.as_user(surface=surface)
    thread = await me.create_thread()
    await kill(await begin(tl, thread, surface, "--key", "k1"))
    async with asyncio.timeout(_QUICK):
        reply = await thread.ask(_QUESTION, key="k1", policy="queue")
        again = await thread.ask(_QUESTION, key="k1", policy="queue")
    assert (reply.text, again.id) == (WHOLE, reply.id)
    assert await log(thread) == ANSWERED
    assert [(turn.status, turn.surface) for turn in await thread.turns()] == [("executed", surface)]


@pytest.mark.req("R-02", "T-06", "S1-15")
@pytest.mark.parametrize(
    ("surface", "policy", "status"),
    [("web", "reject", "interrupted"), ("cli", "queue", "interrupted"), ("api", "interrupt", "stopped")],
)
async def test_the_next_question_is_answered_at_once_and_the_log_keeps_its_order(
    tl: Threadline, surface: Surface, policy: Any, status: str
) -> None:
    me = tl.as_user(surface=surface)
    thread = await me.create_thread()
    await kill(await begin(tl, thread, surface))
    async with asyncio.timeout(_QUICK):
        assert (await thread.ask("And now?", policy=policy)).text == WHOLE
    assert await log(thread) == [
        ("user", _QUESTION, None),
        ("assistant", PARTIAL, status),
        ("user", "And now?", None),
        ("assistant", WHOLE, None),
    ]


@pytest.mark.req("R-01", "R-02")
async def test_a_reader_that_waits_when_the_process_dies_gets_the_whole_answer(tl: Threadline) -> None:
    me = tl.as_user(surface="web")
    thread = await me.create_thread()
    process = await begin(tl, thread, "web")
    (turn,) = await thread.turns()
    heard: list[Any] = []
    async with asyncio.timeout(_QUICK):
        async for event in me.reply(turn.id):
            heard.append(event)
            if event == TextDelta(WORDS[1]) and process.returncode is None:
                await kill(process)
    said = [event for event in heard if isinstance(event, TextDelta | Restart)]
    assert said[-4:] == [Restart(), *map(TextDelta, WORDS)]
    assert await log(thread) == ANSWERED


@pytest.mark.req("R-01")
async def test_a_repeated_request_that_waits_when_the_process_dies_is_answered(tl: Threadline) -> None:
    thread = await tl.as_user(surface="api").create_thread()
    process = await begin(tl, thread, "api", "--key", "k1")
    waiting = asyncio.ensure_future(thread.ask(_QUESTION, key="k1", policy="queue").ended())
    done, _ = await asyncio.wait((waiting,), timeout=1.5)
    assert not done
    await kill(process)
    async with asyncio.timeout(_QUICK):
        assert (await waiting).status == "executed"
    assert await log(thread) == ANSWERED


@pytest.mark.req("R-02", "S3-23")
async def test_a_message_from_a_platform_is_answered_at_once_by_the_next_sweep(tl: Threadline) -> None:
    me = tl.as_user(surface="slack")
    thread = await me.create_thread()
    await kill(await begin(tl, thread, "slack"))
    async with asyncio.timeout(_QUICK):
        assert await tl.recovery.recover(me.scope) == 1
        (turn,) = await thread.turns()
        assert (await me.reply(turn.id).ended()).status == "executed"
    assert await log(thread) == ANSWERED


@pytest.mark.req("R-02", "S1-28")
async def test_a_stop_ends_the_turn_of_a_dead_process(tl: Threadline) -> None:
    thread = await tl.as_user(surface="web").create_thread()
    await kill(await begin(tl, thread, "web"))
    async with asyncio.timeout(_QUICK):
        assert await thread.stop() is True
    assert await log(thread) == [("user", _QUESTION, None), ("assistant", PARTIAL, "stopped")]


@pytest.mark.req("R-02")
async def test_the_turn_of_a_living_process_is_left_alone(tl: Threadline) -> None:
    me = tl.as_user(surface="web")
    thread = await me.create_thread()
    process = await begin(tl, thread, "web")
    assert await tl.recovery.recover(me.scope) == 0
    with pytest.raises(threadline.TurnRunning):
        await thread.ask("And now?", policy="reject")
    (turn,) = await thread.turns()
    assert turn.status == "running"
    await kill(process)
