"""The gateway conformance suite: what `threadline.ports.Gateway` promises, as plain pytest.

An implementation imports everything and defines a fixture `gateway` whose agent `rehearsal` answers:

    from threadline.testing.gateway import *

    @pytest.fixture
    async def gateway():
        async with connect("http://127.0.0.1:8300") as client:
            yield client

The tests run in pytest-asyncio's auto mode and do not depend on what else the user's threads hold. Their `req`
markers name the requirements they prove: register that marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from threadline.core import events
from threadline.core.errors import (
    AgentFailed,
    HeadMoved,
    InvalidImport,
    InvalidInput,
    InvalidName,
    InvalidText,
    KeyReused,
    LimitExceeded,
    NotFound,
    ThreadlineError,
)
from threadline.core.events import ToolCall
from threadline.core.ids import new_state_key
from threadline.core.messages import assistant
from threadline.core.parts import TextPart, tool_part
from threadline.core.threads import ThreadFields
from threadline.ports import Gateway, GatewayReply


@pytest.mark.req("S1-01")
async def test_ask_continue_and_read(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    assert "Hello there" in (await thread.ask("Hello there")).text
    reply = await thread.ask("What did I say first?")
    assert (reply.text, reply.role) == ("The first thing you said was “Hello there”.", "assistant")
    messages = await thread.messages()
    assert [(message.role, message.seq) for message in messages] == [
        ("user", 0), ("assistant", 1), ("user", 2), ("assistant", 3),
    ]  # fmt: skip
    assert [message.seq for message in await thread.messages(first=1, last=2)] == [1, 2]
    assert [message.text for message in await thread.last_turns(1)] == ["What did I say first?", reply.text]
    assert [message.id async for message in thread.stream()] == [message.id for message in messages]
    assert (await thread.refresh()).message_count == 4


@pytest.mark.req("C-06")
async def test_a_question_may_name_its_model_and_the_turn_records_it(gateway: Gateway) -> None:
    thread = await gateway.create_thread(agent_id="rehearsal")
    await thread.ask("Hello", model="rehearsal-2")
    (turn,) = await thread.turns()
    assert (turn.provider, turn.model, turn.usage["output_tokens"] > 0) == ("rehearsal", "rehearsal-2", True)
    with pytest.raises(InvalidName):
        await thread.ask("Hello", model="two\nlines")
    assert len(await thread.turns()) == 1


@pytest.mark.req("C-07")
async def test_usage_is_listed_by_groups(gateway: Gateway) -> None:
    thread = await gateway.create_thread(agent_id="rehearsal")
    before = await gateway.usage(by=["day", "agent"], agent="rehearsal")
    await thread.ask("Hello")
    (used,) = [row for row in await gateway.usage(by=["agent", "day"]) if row.agent_id == "rehearsal"]
    assert used.turns == sum(row.turns for row in before) + 1
    assert (used.day is not None, used.user_id, used.model, used.output_tokens > 0) == (True, None, None, True)
    assert await gateway.usage(agent="nobody") == []
    with pytest.raises(InvalidInput):
        await gateway.usage(by=["thread"])  # type: ignore[list-item]
    with pytest.raises(InvalidInput):
        await gateway.usage(since="2026-11-01")  # type: ignore[arg-type]


async def test_every_character_arrives(gateway: Gateway) -> None:
    odd = "a\u2028b\x85c\x0bd\r\ne 😀"
    thread = await gateway.create_thread()
    said = "".join([text async for text in thread.ask(odd).text()])
    assert [message.text for message in await thread.messages()] == [odd, said]


async def test_a_reply_is_watched_while_it_is_written(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    seen = [event async for event in thread.ask("calculate 6*7")]
    assert events.ToolResult(next(e.call_id for e in seen if isinstance(e, ToolCall)), "42") in seen
    assert isinstance(seen[-1], events.Finish)
    assert "".join([text async for text in thread.ask("calculate 1+1").text()]).endswith("1+1 is 2.")


@pytest.mark.req("S1-25")
async def test_the_same_key_is_the_same_turn(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    first = await thread.ask("Hello", key="k")
    assert await thread.ask("Hello", key="k") == first
    with pytest.raises(KeyReused):
        await thread.ask("Bye", key="k")
    assert len(await thread.messages()) == 2


@pytest.mark.req("S1-28")
async def test_a_turn_is_stopped_and_what_was_shown_is_kept(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    reply = thread.ask("slow 30")
    async for event in reply:
        if isinstance(event, events.TextDelta):
            break
    assert await reply.stop()
    assert (await reply.ended()).status == "stopped"
    messages = await thread.messages()
    assert messages[1].text.startswith("I")
    assert messages[1].metadata == {"status": "stopped"}


@pytest.mark.req("S1-15")
async def test_an_agent_that_fails_is_an_error_with_its_words(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    with pytest.raises(AgentFailed, match="the rehearsal agent failed, as requested"):
        await thread.ask("fail")


@pytest.mark.req("S1-15", "S1-28")
@pytest.mark.parametrize("question", ["Hello", "fail", "slow 30"])
async def test_a_reply_has_one_end_however_it_ends_and_whenever_it_is_read(gateway: Gateway, question: str) -> None:
    reply = (await gateway.create_thread()).ask(question)
    seen = [event async for event in _stopped_at_the_first_word(reply, stops=question == "slow 30")]
    read_later = [event async for event in gateway.reply((await reply.turn()).id)]
    for reading in (seen, [event async for event in reply], read_later):
        ends = [event for event in reading if isinstance(event, events.Finish | events.Failure)]
        assert ends == reading[-1:]
    assert isinstance(seen[-1], events.Finish) is (question == "Hello")


async def _stopped_at_the_first_word(reply: GatewayReply, *, stops: bool) -> AsyncIterator[events.Event]:
    has_stopped = not stops
    async for event in reply:
        if isinstance(event, events.TextDelta) and not has_stopped:
            has_stopped = await reply.stop()
        yield event


@pytest.mark.req("S1-29")
async def test_branch_save_load_undo_switch(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    await thread.ask("One")
    saved = await thread.save("a/first point?")
    assert saved.point.seq == 1
    await thread.ask("Two")
    branch = await thread.branch(at=1, title="Elsewhere")
    assert (branch.message_count, branch.title) == (2, "Elsewhere")
    await branch.ask("Three")
    before = (await thread.refresh()).timeline_id
    await thread.undo()
    assert thread.info.message_count == 2
    await thread.switch(before)
    assert thread.info.message_count == 4
    await thread.load("a/first point?")
    assert thread.info.message_count == 2
    timelines = await thread.timelines()
    assert [timeline.message_count for timeline in timelines] == [4, 2, 2]
    assert "a/first point?" in [each.name for each in await gateway.saved_points()]
    await gateway.forget_saved_point("a/first point?")
    with pytest.raises(NotFound):
        await thread.load("a/first point?")


@pytest.mark.req("H-06")
async def test_a_thread_becomes_the_home_thread(gateway: Gateway) -> None:
    """Makes this the user's home thread."""
    first, second = await gateway.create_thread(title="First"), await gateway.create_thread()
    await first.make_home()
    home = await gateway.home_thread()
    assert home is not None
    assert home.info == await first.refresh()
    await second.make_home()
    await second.make_home()
    home = await gateway.home_thread()
    assert home is not None
    assert home.id == second.id
    await first.delete()
    with pytest.raises(NotFound):
        await first.make_home()
    assert (home := await gateway.home_thread()) is not None
    assert home.id == second.id


async def test_list_search_change_delete(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    await thread.ask("A remarkable zebra")
    await thread.update(title="Animals", metadata={"kind": "zoo"})
    listed = (await gateway.threads(limit=1)).items[0]
    assert (listed.title, listed.metadata, listed.message_count) == ("Animals", {"kind": "zoo"}, 2)
    assert thread.info.title == "Animals"
    hits = await gateway.search("zebra")
    assert {hit.state_key for hit in hits} == {listed.state_key}
    assert (await gateway.thread(listed.state_key)).info.id == listed.id
    await thread.update(archived=True)
    assert listed.id not in [each.id for each in (await gateway.threads(limit=100)).items]
    await thread.delete()
    with pytest.raises(NotFound):
        await gateway.thread(listed.state_key)
    with pytest.raises(NotFound):
        await thread.refresh()


@pytest.mark.req("S1-22")
async def test_pages_follow_their_cursor(gateway: Gateway) -> None:
    for number in range(3):
        await (await gateway.create_thread()).ask(f"Thread {number}")
    first = await gateway.threads(limit=2)
    second = await gateway.threads(limit=2, cursor=first.next_cursor)
    assert len(first.items) == 2
    assert {each.id for each in first.items}.isdisjoint(each.id for each in second.items)


@pytest.mark.req("S0-02", "S0-03")
async def test_contexts_are_pinned_read_and_cleared(gateway: Gateway) -> None:
    await gateway.contexts.set("rehearsal", "I like tea.")
    assert (await gateway.contexts.get("rehearsal")).context == "I like tea."
    assert await gateway.contexts.clear("rehearsal")
    assert not await gateway.contexts.clear("rehearsal")
    with pytest.raises(NotFound):
        await gateway.contexts.get("rehearsal")


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        (lambda thread, view: thread.ask(" ").ended(), InvalidText),
        (lambda thread, view: view.threads(limit=0), InvalidInput),
        (lambda thread, view: view.threads(cursor="made-up"), InvalidInput),
        (lambda thread, view: thread.switch("made-up"), NotFound),
        (lambda thread, view: thread.branch(at=99), InvalidInput),
        (lambda thread, view: thread.save("x" * 101), LimitExceeded),
        (lambda thread, view: thread.respond({"made-up": True}).ended(), InvalidInput),
        (lambda thread, view: view.thread("no-such-thread"), NotFound),
        (lambda thread, view: view.contexts.set("rehearsal", " "), InvalidText),
    ],
)
async def test_errors_are_the_same_errors(gateway: Gateway, verb: object, error: type[ThreadlineError]) -> None:
    thread = await gateway.create_thread()
    await thread.ask("One")
    with pytest.raises(error):
        await verb(thread, gateway)  # type: ignore[operator]


async def test_a_thread_is_opened_by_its_key_and_created_once(gateway: Gateway) -> None:
    """Of several callers at the same time one creates it and all get it."""
    key = new_state_key()
    opened = await asyncio.gather(*(gateway.open_thread(key, title="Trip") for _ in range(4)))
    assert {(thread.id, thread.title, thread.state_key) for thread in opened} == {(opened[0].id, "Trip", key)}
    assert (await gateway.open_thread(key, title="Other")).title == "Trip"
    assert (await gateway.thread(opened[0].id)).state_key == key


async def test_a_thread_has_the_fields_it_was_created_with(gateway: Gateway) -> None:
    fields: ThreadFields = {
        "title": "Trip",
        "agent_id": "rehearsal",
        "model": "small",
        "system_prompt": "Be brief.",
        "working_dir": "/tmp",
        "metadata": {"kind": "zoo"},
    }
    thread = await gateway.create_thread(**fields)
    assert {name: getattr(thread, name) for name in fields} == fields
    assert (thread.message_count, thread.token_count, thread.is_archived) == (0, 0, False)
    await thread.update(title="Other", model=None, archived=True)
    assert (thread.title, thread.model, thread.system_prompt, thread.is_archived) == ("Other", None, "Be brief.", True)
    assert await thread.refresh() == thread.info
    branch = await thread.branch(title="Branch")
    assert (branch.title, branch.system_prompt, branch.agent_id) == ("Branch", "Be brief.", "rehearsal")


async def test_messages_are_appended_and_read_by_place(gateway: Gateway) -> None:
    """With the same key a repeat stores nothing and gives the first answer again."""
    thread = await gateway.create_thread()
    call = tool_part("clock", "c1", {"zone": "UTC"}, output="12:00")
    appended = await thread.append("One", assistant([TextPart("Two"), call]), key="k")
    assert (appended.first_seq, appended.message_count, appended.replayed) == (0, 2, False)
    assert (thread.message_count, thread.title) == (2, "One")
    again = await thread.append("One", assistant([TextPart("Two"), call]), key="k")
    assert (again.message_ids, again.replayed) == (appended.message_ids, True)
    await thread.append("Three", "Four")
    assert [message.text for message in await thread.messages(newest=2)] == ["Three", "Four"]
    second = await thread.message(appended.message_ids[1])
    assert (second.seq, second.role, second.parts) == (1, "assistant", (TextPart("Two"), call))
    with pytest.raises(HeadMoved):
        await thread.append("Five", expected_count=0)
    before = thread.timeline_id
    await thread.rewind(1)
    assert [message.text for message in await thread.messages()] == ["One", "Two"]
    assert len(await thread.messages(timeline=before)) == 4
    assert [message.text for message in await thread.messages(newest=1, timeline=before)] == ["Four"]
    await thread.rewind(second.id, before=True)
    assert thread.message_count == 1


async def test_an_exported_thread_can_be_imported_again(gateway: Gateway) -> None:
    thread = await gateway.create_thread(title="Trip")
    await thread.append("One", assistant("Two"))
    await thread.save("end")
    await thread.rewind(0)
    lines = b"".join([piece async for piece in thread.export()])
    (again,) = await gateway.import_threads(lines)
    assert again == await thread.refresh()
    await thread.purge()
    (imported,) = await gateway.import_threads(lines)
    assert (imported.id, imported.updated_at) == (again.id, again.updated_at)
    copied = await gateway.thread(imported.id)
    assert [message.text for message in await copied.messages()] == ["One"]
    await copied.load("end")
    assert [message.text for message in await copied.messages()] == ["One", "Two"]
    assert len(await copied.timelines()) == 3
    with pytest.raises(InvalidImport):
        await gateway.import_threads(b"nonsense\n")


async def test_threads_are_deleted_restored_purged_and_pruned(gateway: Gateway) -> None:
    thread = await gateway.create_thread(title="Gone")
    await thread.append("One")
    await thread.delete()
    await thread.delete()
    assert thread.id in [each.id for each in await gateway.threads(deleted=True)]
    assert (await gateway.restore_thread(thread.id)).message_count == 1
    await thread.purge()
    with pytest.raises(NotFound):
        await gateway.restore_thread(thread.id)
    empty = await gateway.create_thread()
    assert await gateway.prune() >= 1
    with pytest.raises(NotFound):
        await empty.refresh()


async def test_a_turn_and_its_reply_are_found_again_by_the_turns_id(gateway: Gateway) -> None:
    thread = await gateway.create_thread()
    accepted = await thread.ask("Hello").accept()
    assert accepted.thread_id == thread.id
    reply = gateway.reply(accepted.id)
    message = await reply
    assert [event async for event in reply] == [event async for event in gateway.reply(accepted.id)]
    turn = await gateway.turn(accepted.id)
    assert (turn.status, turn.is_active, turn.id) == ("executed", False, message.turn_id)
    assert await thread.turns() == [turn]
    assert not await thread.stop()
    with pytest.raises(NotFound):
        await gateway.turn("no-such-turn")


@pytest.mark.parametrize(
    "call",
    [
        lambda thread, gateway: thread.append({"role": "user"}),
        lambda thread, gateway: thread.update(title=3),
        lambda thread, gateway: thread.messages(newest=1, first=1),
        lambda thread, gateway: thread.save(3),
        lambda thread, gateway: gateway.create_thread(title=3),
        lambda thread, gateway: gateway.create_thread(metadata="x"),
        lambda thread, gateway: gateway.thread(5),
        lambda thread, gateway: gateway.search(5),
        lambda thread, gateway: gateway.import_threads("text"),
    ],
)
async def test_an_argument_of_the_wrong_type_is_invalid_input(gateway: Gateway, call: Any) -> None:
    thread = await gateway.create_thread()
    with pytest.raises(InvalidInput):
        await call(thread, gateway)
