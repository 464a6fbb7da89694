"""The same scenarios through the library and through a client of a running service: the verbs mean the same."""

from __future__ import annotations

import pytest

from tests.client.conftest import Door
from threadline.core import events
from threadline.core.errors import (
    AgentFailed,
    Conflict,
    InvalidInput,
    InvalidText,
    KeyReused,
    LimitExceeded,
    NotFound,
    ThreadlineError,
)
from threadline.core.events import ToolCall
from threadline.core.parts import ToolPart
from threadline.ports import Verdict


@pytest.mark.req("S1-01")
async def test_ask_go_on_and_read(door: Door) -> None:
    thread = await door.thread()
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


async def test_every_character_arrives(door: Door) -> None:
    odd = "a\u2028b\x85c\x0bd\r\ne 😀"
    thread = await door.thread()
    said = "".join([text async for text in thread.ask(odd).text()])
    assert [message.text for message in await thread.messages()] == [odd, said]


async def test_a_reply_is_watched_while_it_is_written(door: Door) -> None:
    thread = await door.thread()
    seen = [event async for event in thread.ask("calculate 6*7")]
    assert events.ToolResult(next(e.call_id for e in seen if isinstance(e, ToolCall)), "42") in seen
    assert isinstance(seen[-1], events.Finish)
    assert "".join([text async for text in thread.ask("calculate 1+1").text()]).endswith("1+1 is 2.")


@pytest.mark.req("S1-25")
async def test_the_same_key_is_the_same_turn(door: Door) -> None:
    thread = await door.thread()
    first = await thread.ask("Hello", key="k")
    assert await thread.ask("Hello", key="k") == first
    with pytest.raises(KeyReused):
        await thread.ask("Bye", key="k")
    assert len(await thread.messages()) == 2


@pytest.mark.req("S1-28")
async def test_a_turn_is_stopped_and_what_was_shown_is_kept(door: Door) -> None:
    thread = await door.thread()
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
async def test_an_agent_that_fails_is_an_error_with_its_words(door: Door) -> None:
    thread = await door.thread()
    with pytest.raises(AgentFailed, match="the rehearsal agent failed, as requested"):
        await thread.ask("fail")


@pytest.mark.req("S1-29")
async def test_branch_save_load_undo_switch(door: Door) -> None:
    thread = await door.thread()
    await thread.ask("One")
    saved = await thread.save("a/first point?")
    assert saved.point.seq == 1
    await thread.ask("Two")
    branch = await thread.branch(at=1, title="Elsewhere")
    assert (branch.info.message_count, branch.info.title) == (2, "Elsewhere")
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
    assert "a/first point?" in [each.name for each in await door.view.saved_points()]
    await door.view.forget_saved_point("a/first point?")
    with pytest.raises(NotFound):
        await thread.load("a/first point?")


async def test_list_search_change_delete(door: Door) -> None:
    thread = await door.thread()
    await thread.ask("A remarkable zebra")
    await thread.update(title="Animals", metadata={"kind": "zoo"})
    listed = (await door.view.threads(limit=1)).items[0]
    assert (listed.title, listed.metadata, listed.message_count) == ("Animals", {"kind": "zoo"}, 2)
    assert thread.info.title == "Animals"
    hits = await door.view.search("zebra")
    assert {hit.state_key for hit in hits} == {listed.state_key}
    assert (await door.view.thread(listed.state_key)).info.id == listed.id
    await thread.update(archived=True)
    assert listed.id not in [each.id for each in (await door.view.threads(limit=100)).items]
    await thread.delete()
    with pytest.raises(NotFound):
        await door.view.thread(listed.state_key)
    with pytest.raises(NotFound):
        await thread.refresh()


@pytest.mark.req("S1-22")
async def test_pages_follow_their_cursor(door: Door) -> None:
    for number in range(3):
        await (await door.thread()).ask(f"Thread {number}")
    first = await door.view.threads(limit=2)
    second = await door.view.threads(limit=2, cursor=first.next_cursor)
    assert len(first.items) == 2
    assert {each.id for each in first.items}.isdisjoint(each.id for each in second.items)


@pytest.mark.req("S0-02", "S0-03")
async def test_contexts_are_pinned_read_and_cleared(door: Door) -> None:
    await door.view.contexts.set("rehearsal", "I like tea.")
    assert (await door.view.contexts.get("rehearsal")).context == "I like tea."
    assert await door.view.contexts.clear("rehearsal")
    assert not await door.view.contexts.clear("rehearsal")
    with pytest.raises(NotFound):
        await door.view.contexts.get("rehearsal")


async def test_an_approval_waits_and_is_answered_later(door: Door) -> None:
    thread = await door.thread()
    asked = await thread.ask("stamp hello", **door.later)
    (waiting,) = await thread.pending()
    assert (waiting.name, waiting.input) == ("stamp", {"text": "hello"})
    reply = await thread.respond({waiting.approval_id: True})
    assert reply.id == asked.id
    assert reply.text.endswith("stamped: hello [2cf24dba].")
    assert (await thread.respond({waiting.approval_id: True})) == reply
    with pytest.raises(Conflict):
        await thread.respond({waiting.approval_id: False})
    assert await thread.pending() == []


class Judge:
    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[ToolCall] = []

    async def decide(self, call: ToolCall) -> Verdict:
        self.asked.append(call)
        return Verdict(self.answer, "because")  # type: ignore[arg-type]


@pytest.mark.parametrize(("answer", "state"), [("allow", "output-available"), ("deny", "output-denied")])
async def test_an_approver_is_asked_at_once_and_the_reply_goes_on(door: Door, answer: str, state: str) -> None:
    thread, judge = await door.thread(), Judge(answer)
    seen = [event async for event in thread.ask("stamp hello", approver=judge)]
    assert [(call.name, call.input) for call in judge.asked] == [("stamp", {"text": "hello"})]
    assert [type(event) for event in seen].count(events.Finish) == 1
    assert not any(isinstance(event, events.ApprovalRequest) for event in seen)
    (call,) = [part for part in (await thread.messages())[1].parts if isinstance(part, ToolPart)]
    assert call.state == state


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
async def test_errors_are_the_same_errors(door: Door, verb: object, error: type[ThreadlineError]) -> None:
    thread = await door.thread()
    await thread.ask("One")
    with pytest.raises(error):
        await verb(thread, door.view)  # type: ignore[operator]
