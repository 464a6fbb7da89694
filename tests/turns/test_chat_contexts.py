"""The platform port in process: contexts for rooms, each verb safe to repeat."""

from __future__ import annotations

import asyncio

import pytest

from tests.scripted_agent import ScriptedAgent
from threadline.bootstrap import Threadline
from threadline.core.errors import DuplicateId, InvalidInput, NotFound, RoleRefused
from threadline.core.events import TextDelta
from threadline.core.messages import user
from threadline.core.threads import Scope, ThreadChanges
from threadline.core.turns import Lease
from threadline.messaging.chat_contexts import ChatContexts
from threadline.testing.clock import ManualClock
from threadline.turns.acceptance import TurnRequest
from threadline.turns.leases import Holder


@pytest.fixture
def platform(threadline: Threadline, tenant_id: str) -> ChatContexts:
    return threadline.chat_contexts(Scope(tenant_id, "alice"), "matrix")


async def told(platform: ChatContexts, chat_id: str, text: str, key: str) -> str:
    turn = await platform.send_message(chat_id, text, key=key)
    said = "".join([event.text async for event in platform.stream_message(turn.id) if isinstance(event, TextDelta)])
    answered = await platform.answered(turn.id)
    assert answered.turn.status == "executed"
    assert answered.message is not None
    assert answered.message.text == said
    return said


@pytest.mark.req("S2-03")
async def test_one_port_creates_branches_saves_loads_and_asks(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    chat = await platform.create_chat_context(title="Trip")
    assert await told(platform, chat.id, "one", "k1") == "Hello, you."
    saved = await platform.save_chat_context(chat.id, "after one")
    fork = await platform.branch_chat_context(chat.id, title="Fork")
    await told(platform, fork.id, "two", "k2")
    assert scripted_agent.prompt_texts() == [("user", "one"), ("assistant", "Hello, you."), ("user", "two")]
    loaded = await platform.load_chat_context(fork.id, saved.name, key="k3")
    assert loaded.message_count == 2
    assert [each.name for each in await platform.saved_points()] == ["after one"]
    renamed = await platform.change_chat_context(chat.id, ThreadChanges(title="Journey"))
    assert [thread.title for thread in await platform.chat_contexts()] == ["Fork", renamed.title]
    await platform.change_chat_context(chat.id, ThreadChanges(archived=True))
    assert [thread.title for thread in await platform.chat_contexts()] == ["Fork"]


@pytest.mark.req("S2-03", "S2-15")
async def test_every_call_can_be_repeated_after_a_lost_response(
    platform: ChatContexts, scripted_agent: ScriptedAgent
) -> None:
    for _ in range(2):
        assert (await platform.create_chat_context(chat_id="c1")).id == "c1"
        await told(platform, "c1", "one", "k1")
        await told(platform, "c1", "two", "k2")
        assert (await platform.branch_chat_context("c1", new_chat_id="c2")).message_count == 4
    assert len(scripted_agent.prompts) == 2
    for _ in range(2):
        assert (await platform.undo_last("c1", key="k3")).message_count == 2
    assert (await platform.undo_last("c1", key="k4")).message_count == 0
    with pytest.raises(InvalidInput):
        await platform.undo_last("c1", key="k5")


@pytest.mark.req("S2-15")
async def test_a_message_that_is_heard_again_keeps_its_turn_wherever_its_room_is_bound_now(
    platform: ChatContexts,
) -> None:
    first, second = await platform.create_chat_context(), await platform.create_chat_context()
    turn = await platform.send_message(first.id, "one", key="k1")
    again = await platform.send_message(second.id, "one", key="k1")
    assert (again.id, again.thread_id) == (turn.id, first.id)


@pytest.mark.req("S2-15")
async def test_a_repeated_message_is_answered_once_whichever_process_ended_its_turn(
    threadline: Threadline, platform: ChatContexts, tenant_id: str, clock: ManualClock
) -> None:
    alice = Scope(tenant_id, "alice")
    chat = await platform.create_chat_context()
    request = TurnRequest(message=user("one"), surface="matrix", thread_id=chat.id, key="k1")
    # An earlier life of the bot, which was killed a moment ago.
    await threadline.turns.accept(alice, request, Holder(Lease("earlier life", 30), threadline.runner.make_way))
    async with asyncio.timeout(30):
        hearing = asyncio.create_task(told(platform, chat.id, "one", "k1"))
        while not threadline.streams.readers or threadline.runner.running:  # noqa: ASYNC110 - gauges have no notification
            await asyncio.sleep(0)
        clock.advance(31)
        assert await threadline.recovery.recover(alice) == 1
        assert await hearing == "Hello, you."


async def test_what_is_not_this_users_does_not_exist(
    threadline: Threadline, tenant_id: str, platform: ChatContexts
) -> None:
    chat = await platform.create_chat_context(chat_id="c1")
    other = threadline.chat_contexts(Scope(tenant_id, "bob"), "matrix")
    assert await other.chat_context(chat.id) is None
    with pytest.raises(DuplicateId):
        await other.create_chat_context(chat_id="c1")
    for asked in (other.undo_last("c1", key="k"), other.send_message("c1", "hi", key="k2")):
        with pytest.raises(NotFound):
            await asked
    viewer = threadline.chat_contexts(Scope(tenant_id, "alice", "viewer"), "matrix")
    with pytest.raises(RoleRefused):
        await viewer.undo_last("c1", key="k6")
