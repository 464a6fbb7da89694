"""No secret is stored, wherever it could be; what a user pins goes along, and passes the same gate."""

from __future__ import annotations

import msgspec
import pytest

from tests.scripted_agent import ScriptedAgent
from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.errors import GuardRefused, InvalidInput, NotFound
from threadline.library import UserView
from threadline.ports import Store
from threadline.settings import GuardSettings, Settings
from threadline.testing.clock import ManualClock

SECRET = "sk-ant-api03-" + "aB3dE6gH9jK2mN5p" * 5


@pytest.mark.req("S1-21")
async def test_a_secret_reaches_no_table(threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = [
        "Your key is sk-an",
        SECRET[5:],
        ".",
        events.ToolCall("c1", "fetch", {"authorization": "Bearer abc", "note": SECRET}),
        events.ToolResult("c1", {"echo": SECRET, "password": "hunter2-hunter2"}),
        events.ReasoningDelta(f"the key {SECRET}"),
    ]
    thread = await me.create_thread(metadata={"api_key": SECRET}, system_prompt=f"Use {SECRET}")
    reply = thread.ask(f"Here is my key: {SECRET}")
    turn = await reply.ended()
    assert turn.status == "executed"
    await thread.save("point")
    await me.contexts.set("scripted", f"Always use {SECRET}")
    tx = threadline.store.scoped(me.scope)
    chunks = b"".join([chunk.json for chunk in await tx.chunks(turn.id)])
    stored = [
        chunks,
        *[message.parts_json for message in await thread.messages()],
        msgspec.json.encode(await thread.refresh()),
        msgspec.json.encode(await me.contexts.get("scripted")),
        msgspec.json.encode(turn),
    ]
    for place in stored:
        assert SECRET.encode() not in place
        assert SECRET[20:60].encode() not in place
        assert b"hunter2" not in place
    assert b"masked" in chunks
    assert "masked" in (await thread.messages())[0].text


@pytest.mark.req("S0-16", "S0-13")
async def test_a_pinned_context_comes_first_and_only_for_its_user(
    threadline: Threadline, me: UserView, scripted_agent: ScriptedAgent
) -> None:
    await me.contexts.set("scripted", "I live in Porto.")
    await (await me.create_thread()).ask("Where do I live?")
    assert scripted_agent.prompt_texts()[0] == ("system", "Persisted user context:\nI live in Porto.")
    await (await threadline.as_user("bob").create_thread()).ask("Where do I live?")
    assert scripted_agent.prompt_texts() == [("user", "Where do I live?")]


@pytest.mark.req("S0-02", "S0-03")
async def test_a_context_is_overwritten_read_and_cleared(me: UserView, clock: ManualClock) -> None:
    first = await me.contexts.set("scripted", "One")
    clock.advance(5)
    second = await me.contexts.set("scripted", "Two")
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert (await me.contexts.get("scripted")).context == "Two"
    assert await me.contexts.clear("scripted")
    assert not await me.contexts.clear("scripted")
    with pytest.raises(NotFound):
        await me.contexts.get("scripted")


@pytest.mark.req("S0-17", "S0-11")
async def test_text_that_the_guard_refuses_is_neither_pinned_nor_asked(
    store: Store, settings: Settings, clock: ManualClock
) -> None:
    guarded = msgspec.structs.replace(settings, guard=GuardSettings(patterns=("forbidden",), message="Not here."))
    me = Threadline(store, guarded, clock).as_user()
    with pytest.raises(GuardRefused, match="Not here"):
        await me.contexts.set("rehearsal", "A FOR\u200bBIDDEN word")
    with pytest.raises(InvalidInput):
        await me.contexts.set("rehearsal", "  \n ")
    with pytest.raises(NotFound):
        await me.contexts.get("rehearsal")
    thread = await me.create_thread()
    with pytest.raises(GuardRefused):
        await thread.ask("Say something forbidden", agent="rehearsal")
    assert await thread.messages() == []


async def test_the_prompt_of_a_turn_can_be_reconstructed_later(threadline: Threadline, me: UserView) -> None:
    await me.contexts.set("scripted", "Be brief.")
    thread = await me.create_thread(system_prompt="You are kind.")
    await thread.ask("One")
    ended = await thread.ask("Two").ended()
    turn = await threadline.turns.find(me.scope, ended.id)
    assert turn.seen["system"] == ["Persisted user context:\nBe brief.", "You are kind."]
    assert (turn.seen["first_seq"], turn.seen["turns"]) == (0, 1)
